"""The rules for cuDNN's workspaces against a sweep measured on an H200."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomph.trace.kernels._convolution_workspaces import (
    ConvolutionShape,
    forward_workspace,
    input_gradient_workspace,
    weight_gradient_workspace,
)
from oomph.units import MIB

FILE = Path(__file__).parents[3] / "benchmarks/results/convolutions-h200-2026-11-15.csv"
ROWS = list(csv.DictReader(FILE.read_text().splitlines()))


def measured_shape(row: dict[str, str]) -> ConvolutionShape:
    side, kernel = int(row["side"]), int(row["kernel"])
    return ConvolutionShape(
        batch=int(row["batch"]),
        in_channels=int(row["ins"]),
        out_channels=int(row["outs"]),
        in_pixels=side**2,
        out_pixels=int(row["side_out"]) ** 2,
        taps=kernel**2,
        pointwise=kernel == 1 and row["stride"] == "1",
        groups=int(row["groups"]),
        element_size=4 if row["dtype"] == "float32" else 2,
        channels_last=row["channels_last"] == "1",
        bfloat16=row["dtype"] == "bfloat16",
    )


def relative_error(row: dict[str, str], kind: str, predicted: int) -> float:
    """Return the error of a prediction relative to the convolution's tensors."""
    conv = measured_shape(row)
    measured = int(row[f"{kind}_peak"]) - int(row[f"{kind}_kept"])
    return abs(predicted - measured) / (conv.input_bytes() + conv.output_bytes() + conv.weight_bytes + 20 * MIB)


@pytest.mark.parametrize(
    ("kind", "rule", "fraction"),
    [
        ("forward", forward_workspace, 0.94),
        ("input_gradient", input_gradient_workspace, 0.96),
        ("weight_gradient", weight_gradient_workspace, 0.88),
    ],
)
def test_most_workspaces_follow_the_rules(kind: str, rule: Callable[[ConvolutionShape], int], fraction: float) -> None:
    close = [relative_error(row, kind, rule(measured_shape(row))) < 0.1 for row in ROWS]
    assert sum(close) / len(close) > fraction


def conv(**changes: Any) -> ConvolutionShape:
    """Return a 3 x 3 convolution in half precision and channels_last, with changes."""
    default: dict[str, Any] = {
        "batch": 8,
        "in_channels": 64,
        "out_channels": 64,
        "in_pixels": 6400,
        "out_pixels": 6400,
        "taps": 9,
        "groups": 1,
        "pointwise": False,
        "element_size": 2,
        "channels_last": True,
    }
    return ConvolutionShape(**{**default, **changes})


def test_3_by_3_without_channels_last_converts_everything() -> None:
    plain = conv(channels_last=False)
    assert forward_workspace(plain) == plain.input_bytes() + plain.output_bytes() + plain.weight_bytes
    assert input_gradient_workspace(plain) == plain.input_bytes() + plain.output_bytes() + plain.weight_bytes


def test_channels_last_converts_only_unaligned_channels() -> None:
    assert forward_workspace(conv()) == 0
    unaligned = conv(in_channels=100, out_channels=52)
    assert input_gradient_workspace(unaligned) == 8 * 6400 * 2 * (104 + 56) + 104 * 56 * 9 * 2


def test_first_layer_reads_images_without_conversion() -> None:
    assert forward_workspace(conv(in_channels=3)) == forward_workspace(conv(in_channels=3, channels_last=False)) == 0
    assert weight_gradient_workspace(conv(in_channels=3, channels_last=False, element_size=4)) == 0
    images = 8 * 6400 * 2 * (8 + 64)  # in half precision the gradient needs padded images
    assert images < weight_gradient_workspace(conv(in_channels=3, channels_last=False)) < 1.2 * images


def test_gradients_of_unaligned_outputs_are_padded() -> None:
    unaligned = conv(out_channels=3, channels_last=False)
    assert input_gradient_workspace(unaligned) == 8 * 6400 * 2 * (64 + 8) + 64 * 8 * 9 * 2


def test_groups_are_padded_to_a_power_of_two() -> None:
    grouped = conv(in_channels=72, out_channels=72, groups=3, channels_last=False)
    assert input_gradient_workspace(grouped) == 8 * 6400 * 2 * 2 * 96 + 96 * 32 * 9 * 2


def test_weight_gradient_is_split_until_the_gpu_is_full() -> None:
    whole = 128 * 128 * 9 * 4
    many = conv(in_channels=128, out_channels=128, batch=64)
    assert weight_gradient_workspace(many, 132) == 132 // 9 * whole
    assert weight_gradient_workspace(many, 66) == 66 // 9 * whole
    assert weight_gradient_workspace(conv(in_channels=128, out_channels=128, batch=1)) == 0  # too few pixels


def test_pointwise_weight_gradient_is_one_product_per_sample_unless_that_is_larger() -> None:
    pointwise: dict[str, Any] = {"taps": 1, "pointwise": True, "channels_last": False}
    small = conv(**pointwise)
    assert weight_gradient_workspace(small) == 8 * 64 * 64 * 4
    large = conv(**pointwise, in_channels=512, out_channels=2048, in_pixels=49, out_pixels=49)
    assert weight_gradient_workspace(large) == large.input_bytes() + large.output_bytes()


def test_double_precision_has_workspaces_too() -> None:
    double = conv(in_channels=3, channels_last=False, element_size=8)
    assert forward_workspace(double) == double.input_bytes() + double.output_bytes() + double.weight_bytes
    assert weight_gradient_workspace(double) > forward_workspace(double)


@pytest.mark.parametrize(
    ("dtype", "batch", "ins", "outs", "side", "per_sample"),
    [
        ("bfloat16", 64, 256, 960, 7, True),  # MobileNetV4
        ("bfloat16", 32, 384, 1536, 7, True),  # NFNet
        ("float16", 64, 320, 1280, 7, True),  # EfficientNet
        ("float16", 128, 160, 960, 7, False),  # MobileNetV3
        ("bfloat16", 32, 176, 704, 7, False),  # EfficientFormerV2
        ("float16", 32, 448, 1792, 7, False),  # EfficientFormer
        ("bfloat16", 32, 512, 1280, 7, False),  # MobileOne
        ("bfloat16", 32, 832, 384, 7, False),  # GoogLeNet
        ("float16", 64, 512, 1000, 13, False),  # SqueezeNet
        ("float32", 16, 1024, 1024, 14, True),  # ResNeXt
        ("float32", 64, 160, 960, 7, True),  # MobileNetV3
        ("float32", 128, 256, 512, 7, False),  # LCNet
        ("float32", 32, 1280, 512, 7, False),  # DLA
    ],
)
def test_pointwise_weight_gradients_of_networks(
    dtype: str, batch: int, ins: int, outs: int, side: int, *, per_sample: bool
) -> None:
    """Some are one product per sample, summed at the end, as the peaks of these networks on an H200 show."""
    row = {"dtype": dtype, "batch": batch, "ins": ins, "outs": outs, "kernel": 1, "stride": 1, "side": side}
    text = {key: str(value) for key, value in {**row, "side_out": side, "groups": 1, "channels_last": 0}.items()}
    products = batch * ins * outs * 4
    assert (weight_gradient_workspace(measured_shape(text)) == products) is per_sample


@pytest.mark.parametrize(("channels", "is_padded"), [(255, True), (256, False)])
def test_weight_gradient_of_a_detectors_head_is_padded(channels: int, *, is_padded: bool) -> None:
    """YOLOv5s on an H200, 64 images of 640 pixels: 203.3 MiB for 255 channels."""
    head = ConvolutionShape(
        64,
        128,
        channels,
        80 * 80,
        80 * 80,
        1,
        pointwise=True,
        groups=1,
        element_size=2,
        channels_last=True,
        bfloat16=True,
    )
    assert (weight_gradient_workspace(head) > 200 * MIB) == is_padded
    if is_padded:
        assert weight_gradient_workspace(head) == pytest.approx(203.34 * MIB, rel=0.03)
