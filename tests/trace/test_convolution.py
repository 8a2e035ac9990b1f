"""The rules for cuDNN's workspaces against the sweep that was measured on an H200."""

from __future__ import annotations

import csv
from pathlib import Path

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
    )


def off(row: dict[str, str], kind: str, predicted: int) -> float:
    """How far a prediction is off, as a share of the convolution's own tensors."""
    conv = convolution(row)
    seen = int(row[f"{kind}_peak"]) - int(row[f"{kind}_kept"])
    return abs(predicted - seen) / (conv.input() + conv.output() + conv.weight + 20 * MIB)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("forward", forward_workspace),
        ("input_gradient", input_gradient_workspace),
        ("weight_gradient", weight_gradient_workspace),
    ],
)
def test_most_workspaces_follow_the_rules(kind: str, rule: object) -> None:
    assert callable(rule)
    close = [off(row, kind, rule(convolution(row))) < 0.1 for row in ROWS]
    assert sum(close) / len(close) > 0.74


def test_a_3_by_3_without_channels_last_converts_everything() -> None:
    conv = Convolution(8, 64, 64, 80 * 80, 80 * 80, 9, pointwise=False, groups=1, element=4, channels_last=False)
    assert forward_workspace(conv) == conv.input() + conv.output() + conv.weight


def test_with_channels_last_nothing_is_converted_unless_channels_are_ragged() -> None:
    conv = Convolution(8, 64, 64, 80 * 80, 80 * 80, 9, pointwise=False, groups=1, element=2, channels_last=True)
    assert forward_workspace(conv) == 0
    ragged = Convolution(8, 3, 64, 80 * 80, 80 * 80, 9, pointwise=False, groups=1, element=2, channels_last=True)
    assert forward_workspace(ragged) == 8 * 8 * 6400 * 2
