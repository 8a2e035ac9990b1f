"""The rules for cuDNN's workspaces against the sweep that was measured on an H200."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomph.trace._convolution import (
    Convolution,
    forward_workspace,
    input_gradient_workspace,
    weight_gradient_workspace,
)
from oomph.units import MIB

FILE = Path(__file__).parents[2] / "benchmarks/results/convolutions-h200-2026-11-15.csv"
ROWS = list(csv.DictReader(FILE.read_text().splitlines()))


def convolution(row: dict[str, str]) -> Convolution:
    side, kernel = int(row["side"]), int(row["kernel"])
    return Convolution(
        batch=int(row["batch"]),
        ins=int(row["ins"]),
        outs=int(row["outs"]),
        pixels_in=side**2,
        pixels_out=int(row["side_out"]) ** 2,
        kernel=kernel**2,
        pointwise=kernel == 1 and row["stride"] == "1",
        groups=int(row["groups"]),
        element=4 if row["dtype"] == "float32" else 2,
        channels_last=row["channels_last"] == "1",
        bfloat16=row["dtype"] == "bfloat16",
    )


def off(row: dict[str, str], kind: str, predicted: int) -> float:
    """How far a prediction is off, as a share of the convolution's own tensors."""
    conv = convolution(row)
    seen = int(row[f"{kind}_peak"]) - int(row[f"{kind}_kept"])
    return abs(predicted - seen) / (conv.input() + conv.output() + conv.weight + 20 * MIB)


@pytest.mark.parametrize(
    ("kind", "rule", "share"),
    [
        ("forward", forward_workspace, 0.94),
        ("input_gradient", input_gradient_workspace, 0.96),
        ("weight_gradient", weight_gradient_workspace, 0.88),
    ],
)
def test_most_workspaces_follow_the_rules(kind: str, rule: Callable[[Convolution], int], share: float) -> None:
    close = [off(row, kind, rule(convolution(row))) < 0.1 for row in ROWS]
    assert sum(close) / len(close) > share


def conv(**changes: Any) -> Convolution:
    """A 3 x 3 in half precision and channels_last, changed."""
    shape = {"batch": 8, "ins": 64, "outs": 64, "pixels_in": 6400, "pixels_out": 6400, "kernel": 9, "groups": 1}
    usual: dict[str, Any] = {**shape, "pointwise": False, "element": 2, "channels_last": True}
    return Convolution(**{**usual, **changes})


def test_a_3_by_3_without_channels_last_converts_everything() -> None:
    plain = conv(channels_last=False)
    assert forward_workspace(plain) == plain.input() + plain.output() + plain.weight
    assert input_gradient_workspace(plain) == plain.input() + plain.output() + plain.weight


def test_with_channels_last_nothing_is_converted_unless_channels_are_ragged() -> None:
    assert forward_workspace(conv()) == 0
    assert input_gradient_workspace(conv(ins=100, outs=52)) == 8 * 6400 * 2 * (104 + 56) + 104 * 56 * 9 * 2


def test_a_first_layer_reads_images_as_they_are() -> None:
    assert forward_workspace(conv(ins=3)) == forward_workspace(conv(ins=3, channels_last=False)) == 0
    assert weight_gradient_workspace(conv(ins=3, channels_last=False, element=4)) == 0
    images = 8 * 6400 * 2 * (8 + 64)  # in half precision the gradient needs them padded
    assert images < weight_gradient_workspace(conv(ins=3, channels_last=False)) < 1.2 * images


def test_gradients_of_ragged_outputs_are_padded() -> None:
    assert input_gradient_workspace(conv(outs=3, channels_last=False)) == 8 * 6400 * 2 * (64 + 8) + 64 * 8 * 9 * 2


def test_groups_are_padded_to_a_power_of_two() -> None:
    grouped = conv(ins=72, outs=72, groups=3, channels_last=False)
    assert input_gradient_workspace(grouped) == 8 * 6400 * 2 * 2 * 96 + 96 * 32 * 9 * 2


def test_a_weight_gradient_is_shared_out_until_the_gpu_is_full() -> None:
    whole = 128 * 128 * 9 * 4
    many = conv(ins=128, outs=128, batch=64)
    assert weight_gradient_workspace(many, 132) == 132 // 9 * whole
    assert weight_gradient_workspace(many, 66) == 66 // 9 * whole
    assert weight_gradient_workspace(conv(ins=128, outs=128, batch=1)) == 0  # too few pixels to share


def test_a_pointwise_weight_gradient_is_one_product_a_sample_unless_that_is_dear() -> None:
    cheap = conv(kernel=1, pointwise=True, channels_last=False)
    assert weight_gradient_workspace(cheap) == 8 * 64 * 64 * 4
    dear = conv(kernel=1, pointwise=True, channels_last=False, ins=512, outs=2048, pixels_in=49, pixels_out=49)
    assert weight_gradient_workspace(dear) == dear.input() + dear.output()


def test_double_precision_has_workspaces_too() -> None:
    double = conv(ins=3, channels_last=False, element=8)
    assert forward_workspace(double) == double.input() + double.output() + double.weight
    assert weight_gradient_workspace(double) > forward_workspace(double)
