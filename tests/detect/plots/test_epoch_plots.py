from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oomph.detect import memory_plot, results_plot
from oomph.units import GIB


def row(epoch: int, **values: float | None) -> dict[str, Any]:
    losses = {"loss": 3.0, "box_loss": 1.0 / epoch, "obj_loss": 1.0, "cls_loss": 1.0}
    return {"epoch": epoch, **losses, "lr": 0.1, "peak_bytes": GIB, **values}


def points(line: Line2D) -> list[list[float]]:
    return np.asarray(line.get_xydata()).tolist()


def ticks(figure: Figure) -> list[str]:
    """Return the visible ticks of the first x axis."""
    area = figure.axes[0]
    left, right = area.get_xlim()
    return [
        label.get_text()
        for place, label in zip(area.get_xticks(), area.get_xticklabels(), strict=True)
        if left <= place <= right
    ]


def test_each_column_has_a_chart(figures: list[Figure]) -> None:
    rows = [row(1), row(2, map50=0.4, map50_95=0.2, precision=0.5, recall=0.6), row(3)]
    assert results_plot(rows).startswith(b"\x89PNG")
    charts = {area.get_title(): area.lines[0] for area in figures[0].axes}
    assert list(charts) == [
        "box loss",
        "objectness loss",
        "class loss",
        "learning rate",
        "precision",
        "recall",
        "mAP50",
        "mAP50-95",
    ]
    assert points(charts["box loss"]) == [[1, 1], [2, 1 / 2], [3, 1 / 3]]
    assert points(charts["mAP50"]) == [[2, 0.4]]


def test_a_teacher_adds_a_chart(figures: list[Figure]) -> None:
    results_plot([row(1, distill_loss=0.3)])
    assert [area.get_title() for area in figures[0].axes][3] == "distillation loss"


@pytest.mark.parametrize(("epochs", "expected"), [(1, ["1"]), (2, ["1", "2"]), (3, ["1", "2", "3"])])
def test_epochs_have_whole_numbers(epochs: int, expected: list[str], figures: list[Figure]) -> None:
    results_plot([row(epoch) for epoch in range(1, epochs + 1)])
    assert ticks(figures[0]) == expected


def test_a_thousand_epochs_have_few_ticks_and_no_dots(figures: list[Figure]) -> None:
    results_plot([row(epoch) for epoch in range(1, 1001)])
    assert 3 < len(ticks(figures[0])) < 12
    assert figures[0].axes[0].lines[0].get_marker() in {"", "None"}


def test_values_that_are_not_finite_are_gaps(figures: list[Figure]) -> None:
    results_plot(
        [row(epoch, box_loss=value, cls_loss=math.nan) for epoch, value in ((1, 1.0), (2, math.inf), (3, 2.0))]
    )
    box, _, cls, *_ = figures[0].axes
    assert box.get_ylim()[1] < 3
    assert [text.get_text() for text in cls.texts] == ["no values"]


@pytest.mark.parametrize(("budget", "expected"), [(3, "budget, 3 GiB"), (141, "budget, 141 GiB (above the chart)")])
def test_memory_has_the_budget_without_becoming_flat(budget: int, expected: str, figures: list[Figure]) -> None:
    memory_plot([row(1), row(2)], 2 * GIB, budget * GIB)
    (figure,) = figures
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "measured so far",
        "predicted, 2 GiB",
        expected,
    ]
    assert figure.axes[0].get_ylim() == pytest.approx((0, 1.1 * (budget if budget < 5 else 2)))
    assert figure.axes[0].get_ylabel() == "GiB"
