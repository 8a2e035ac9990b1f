from __future__ import annotations

import hashlib
import math

import pytest
import torch
from torch import nn

from oomph.detect import DetectionLoss, Yolov5, yolov5
from oomph.errors import UsageError

# Number of tensors, SHA-256 of the lines "name shape", and parameters of the reference's checkpoints with 80 classes.
CHECKPOINTS = {
    "n": (349, "005227114e740aa6e7630282ea5db9372a96c96be581ce1d49972808871b99bc", 1_872_157),
    "s": (349, "64598587120a7b93af09ab537bfb9088a704335fe33418d63fc03e3914a0a562", 7_235_389),
    "m": (481, "79aedf3e1123ee408dd02799ab91c1e3a24f5ed26bc4a3089733db9fc98d09a0", 21_190_557),
    "l": (613, "c15f57264fe8b0fcd9b6809e9485e68c99d74acbd212d30047df8cd051ca54ad", 46_563_709),
    "x": (745, "7fc50b91e179dd3540485ec7d15de3daca5891bf910e19766b946ed655ea0332", 86_749_405),
}
SMALL = ("mobilenet", "shufflenet", "depthwise")
BIASES = {"model.24.m.0.bias", "model.24.m.1.bias", "model.24.m.2.bias"}


def listing(model: nn.Module) -> list[str]:
    return [f"{name} {'x'.join(map(str, tensor.shape))}" for name, tensor in model.state_dict().items()]


@pytest.mark.medium
@pytest.mark.parametrize("size", CHECKPOINTS)
def test_tensor_names_shapes_and_parameter_counts_match_the_checkpoints(size: str) -> None:
    with torch.device("meta"):
        model = yolov5(size)
    lines, digest, parameters = CHECKPOINTS[size]
    tensors = listing(model)
    assert tensors[0].startswith("model.0.conv.weight ")
    assert tensors[-1].startswith("model.24.m.2.bias ")
    assert len(tensors) == lines
    assert hashlib.sha256("\n".join(tensors).encode()).hexdigest() == digest
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_training_mode_returns_raw_levels_and_eval_mode_predictions_first() -> None:
    model = yolov5("n", classes=3)
    images = torch.rand(2, 3, 64, 96)
    raw = model(images)
    assert [tuple(level.shape) for level in raw] == [(2, 3, 8, 12, 8), (2, 3, 4, 6, 8), (2, 3, 2, 3, 8)]
    model.eval()
    predictions, levels = model(images)
    assert predictions.shape == (2, 3 * (96 + 24 + 6), 8)
    assert len(levels) == 3


def test_decoding_follows_the_formulas() -> None:
    model = yolov5("n", classes=2).eval()
    with torch.no_grad():
        predictions, levels = model(torch.rand(1, 3, 64, 96))
    raw = levels[1][0, 2, 3, 5]  # stride 16, third anchor (59, 119), row 3, column 5
    sigmoid = [1 / (1 + math.exp(-float(value))) for value in raw]
    index = 3 * 96 + 2 * 24 + 3 * 6 + 5
    expected = [(2 * sigmoid[0] - 0.5 + 5) * 16, (2 * sigmoid[1] - 0.5 + 3) * 16]
    expected += [(2 * sigmoid[2]) ** 2 * 59, (2 * sigmoid[3]) ** 2 * 119, *sigmoid[4:]]
    assert predictions[0, index].tolist() == pytest.approx(expected, rel=1e-5)


def test_initial_biases_expect_few_objects() -> None:
    torch.manual_seed(0)
    biases = [bias.view(3, -1) for name, bias in yolov5("n", classes=10).state_dict().items() if name in BIASES]
    for bias, stride in zip(biases, (8, 16, 32), strict=True):
        fresh = bias[:, 4] - math.log(8 / (640 / stride) ** 2)
        assert float(fresh.abs().max()) < 0.13  # range of a fresh convolution with 64 or more inputs
        assert float((bias[:, 5:] - math.log(0.6 / 9.00001)).abs().max()) < 0.13
        assert float(bias[:, :4].abs().max()) < 0.13


def test_batch_norm_parameters_match_the_reference() -> None:
    norms = [module for module in yolov5("n").modules() if isinstance(module, nn.BatchNorm2d)]
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.03)}


def test_memory_format_and_precision_change_predictions_little() -> None:
    torch.manual_seed(0)
    model = yolov5("n", classes=2).eval()
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        plain = model(images)[0]
        for parameter in model.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.to(memory_format=torch.channels_last)
        last = model(images.to(memory_format=torch.channels_last))[0]
        with torch.autocast("cpu", torch.bfloat16):
            low = model(images)[0]
    assert torch.allclose(plain, last, atol=1e-3)
    assert low.dtype == torch.float32  # bf16 can't represent coordinates of 640 pixels
    assert torch.allclose(plain[..., :4], low[..., :4], atol=1.0)


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(
        UsageError, match="'t' is not a network; choose one of n, s, m, l, x, mobilenet, shufflenet, depthwise"
    ):
        yolov5("t")
    with pytest.raises(UsageError, match="classes is 0"):
        yolov5("n", classes=0)
    with pytest.raises(UsageError, match=r"three \(width, height\) pairs for each"):
        yolov5("n", anchors=[[(1, 2)]])
    with pytest.raises(UsageError, match="the images are 100 x 64 pixels; make both sides multiples of 32"):
        yolov5("n")(torch.rand(1, 3, 100, 64))
    assert isinstance(yolov5("yolov5s", classes=1), Yolov5)


@pytest.mark.parametrize("size", SMALL)
def test_every_backbone_gives_features_at_strides_8_16_and_32(size: str) -> None:
    model = yolov5(size, classes=3)
    images = torch.rand(2, 3, 64, 96)
    shapes = [(2, 3, 8, 12, 8), (2, 3, 4, 6, 8), (2, 3, 2, 3, 8)]
    assert [tuple(level.shape) for level in model(images)] == shapes
    assert model.eval()(images)[0].shape == (2, 3 * (96 + 24 + 6), 8)


@pytest.mark.medium
@pytest.mark.parametrize("size", SMALL)
def test_gradients_reach_every_parameter(size: str) -> None:
    torch.manual_seed(0)
    model = yolov5(size, classes=3)
    sum(level.square().mean() for level in model(torch.rand(2, 3, 64, 64))).backward()
    missing = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert missing == []


@pytest.mark.medium
@pytest.mark.parametrize("size", SMALL)
def test_every_network_runs_in_channels_last_and_in_bf16(size: str) -> None:
    torch.manual_seed(0)
    model = yolov5(size, classes=2).eval()
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        plain = model(images)[0]
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        last = model(images.to(memory_format=torch.channels_last))[0]
        with torch.autocast("cpu", torch.bfloat16):
            low = model(images)[0]
    assert torch.allclose(plain, last, atol=1e-3)
    assert low.dtype == torch.float32
    assert torch.allclose(plain[..., :4], low[..., :4], atol=1.0)


@pytest.mark.medium
@pytest.mark.parametrize("size", SMALL)
def test_every_network_learns_a_batch(size: str) -> None:
    torch.manual_seed(0)
    model = yolov5(size, classes=2)
    loss = DetectionLoss(model, imgsz=64)
    optimizer = torch.optim.AdamW(model.parameters(), 0.002)
    images, targets = (
        torch.rand(4, 3, 64, 64) / 4,
        torch.tensor([[float(image), 1, 0.5, 0.5, 0.5, 0.5] for image in range(4)]),
    )
    images[:, :, 16:48, 16:48] += 0.75
    losses = []
    for _ in range(16):  # not two: objectness is trained toward the IoU of the step, so the first steps may rise
        value = loss(model(images), targets)
        losses.append(value.item())
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


def test_anchors_are_stored_in_cells() -> None:
    anchors = [[(8, 16)] * 3, [(16, 32)] * 3, [(32, 64)] * 3]
    assert torch.equal(yolov5("n", anchors=anchors).head.anchors, torch.tensor([1.0, 2.0]).expand(3, 3, 2))
