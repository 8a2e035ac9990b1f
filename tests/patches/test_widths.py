from __future__ import annotations

import pytest
import torch
from torch import nn

from oomph.errors import UsageError
from oomph.patches import read_widths, set_widths


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False),
        nn.BatchNorm2d(8, eps=1e-3, momentum=0.03),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 4, 1, groups=2),
        nn.Flatten(),
        nn.Linear(4, 5),
    )


def test_widths_are_inputs_and_outputs_of_layers_with_channels() -> None:
    assert read_widths(network()) == {"0": (3, 8), "1": (8, 8), "2": (8, 8), "3": (8, 4), "5": (4, 5)}


def test_a_model_takes_widths_and_keeps_all_other_options() -> None:
    model = network()
    kept = model[5].weight
    widths = {"0": (3, 6), "1": (6, 6), "2": (6, 6), "3": (6, 4)}
    set_widths(model, widths)
    assert read_widths(model) == widths | {"5": (4, 5)}
    first, norm, depthwise, grouped = model[0], model[1], model[2], model[3]
    assert isinstance(first, nn.Conv2d)
    assert (first.stride, first.padding, first.bias) == ((2, 2), (1, 1), None)
    assert isinstance(norm, nn.BatchNorm2d)
    assert (norm.eps, norm.momentum) == (1e-3, 0.03)
    assert norm.running_var is not None
    assert norm.running_var.tolist() == [1.0] * 6
    assert isinstance(depthwise, nn.Conv2d)
    assert isinstance(grouped, nn.Conv2d)
    assert (depthwise.groups, grouped.groups) == (6, 2)
    assert model[5].weight is kept
    assert model(torch.zeros(2, 3, 7, 7)[:, :, :5, :5]).shape == (2, 5)


def test_new_layers_are_where_the_old_ones_were_and_train_if_they_did() -> None:
    model = network().to("meta").double()
    model[0].requires_grad_(requires_grad=False)
    set_widths(model, {"0": (3, 4), "1": (4, 4), "2": (4, 4), "3": (4, 4)})
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert [parameter.requires_grad for parameter in model[0].parameters()] == [False]
    assert all(parameter.requires_grad for parameter in model[1].parameters())


@pytest.mark.parametrize("widths", [{"9": (1, 1)}, {"4": (1, 1)}, {"0": (3, 0)}])
def test_widths_of_another_model_are_one_sentence(widths: dict[str, tuple[int, int]]) -> None:
    with pytest.raises(UsageError, match="which this model doesn't have; use the original model"):
        set_widths(network(), widths)
