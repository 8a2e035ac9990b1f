from __future__ import annotations

import pytest
import torch

from oomph.detect import Hyperparameters, build_optimizer, freeze, parameter_groups, yolov5


def test_only_convolution_weights_decay_and_every_parameter_has_one_group() -> None:
    model = yolov5("n", classes=2)
    groups = {group["name"]: group for group in parameter_groups(model, Hyperparameters(), batch=16)}
    parameters = [parameter for group in groups.values() for parameter in group["params"]]
    assert len(parameters) == len({id(parameter) for parameter in parameters}) == len(list(model.parameters()))
    assert {parameter.dim() for parameter in groups["weights"]["params"]} == {4}
    assert {parameter.dim() for parameter in groups["norms"]["params"]} == {1}
    assert len(groups["biases"]["params"]) == len(groups["norms"]["params"]) + 3
    assert (groups["biases"]["weight_decay"], groups["norms"]["weight_decay"]) == (0.0, 0.0)


@pytest.mark.parametrize(("batch", "decay"), [(16, 5e-4), (64, 5e-4), (128, 1e-3), (24, 5e-4 * 72 / 64)])
def test_weight_decay_scales_with_the_batch(batch: int, decay: float) -> None:
    with torch.device("meta"):
        model = yolov5("n", classes=2)
    assert parameter_groups(model, Hyperparameters(), batch)[0]["weight_decay"] == pytest.approx(decay)


def test_optimizers_have_the_hyperparameters() -> None:
    with torch.device("meta"):
        model = yolov5("n", classes=2)
    sgd = build_optimizer(model, Hyperparameters(), 16)
    assert isinstance(sgd, torch.optim.SGD)
    assert sgd.param_groups[0]["nesterov"]
    assert sgd.param_groups[0]["name"] == "weights"  # decayed first, so that SGD allocates before it writes
    adam = build_optimizer(model, Hyperparameters(optimizer="AdamW"), 16)
    assert isinstance(adam, torch.optim.AdamW)
    assert adam.param_groups[1]["betas"] == (0.937, 0.999)


def test_freeze_keeps_the_first_layers() -> None:
    model = yolov5("n", classes=2)
    count = freeze(model, 10)
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert {int(name.split(".")[1]) for name in frozen} == set(range(10))
    assert count == sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad) > 0
    assert freeze(yolov5("n", classes=2), 0) == 0
