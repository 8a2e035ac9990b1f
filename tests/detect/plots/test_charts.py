from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from oomph.detect import Chart, ClassScore, Line, Scores, draw_chart, epoch_chart, precision_recall_chart
from oomph.detect.plots._charts import _PlotArea, ticks
from oomph.detect.plots._drawing import COLORS


def has_color(image: NDArray[np.uint8], color: tuple[int, int, int]) -> bool:
    return bool((image == color).all(2).any())


def test_every_line_is_drawn_and_gaps_are_tolerated() -> None:
    lines = (Line("a", (0, 1, 2, 3), (0.2, 0.4, math.nan, 1.0)), Line("b", (0, 1, 2, 3), (0.5,) * 4))
    image = draw_chart(Chart("title", "x", "y", lines))
    assert image.shape == (500, 800, 3)
    plot = image[60:430, 90:600]
    assert has_color(plot, COLORS[0])
    assert has_color(plot, COLORS[1])


@pytest.mark.parametrize("values", [[], [3.0]])
def test_charts_with_few_points_are_drawn(values: list[float]) -> None:
    chart = epoch_chart("losses", list(range(len(values))), {"box_loss": values})
    assert draw_chart(chart).shape == (500, 800, 3)


def test_precision_recall_chart_has_every_class_with_boxes() -> None:
    cat = ClassScore("cat", 3, 0.5, 0.4, 0.5, 0.5, 0.3, (1.0,) * 51 + (0.0,) * 50)
    dog = ClassScore("dog", 0, None, None, None, None, None, ())
    chart = precision_recall_chart(Scores(0.5, 0.4, 0.5, 0.5, {}, (cat, dog), 1, 3))
    assert [line.name for line in chart.lines] == ["all 0.500", "cat 0.500"]
    assert chart.lines[0].y == cat.curve
    assert draw_chart(chart).shape == (500, 800, 3)


@pytest.mark.parametrize(
    ("low", "high", "integers", "expected"),
    [
        (1, 2, True, [1, 2]),
        (1, 1 + 1e-9, True, [1]),
        (1, 15, True, [5, 10, 15]),
        (1, 300, True, [100, 200, 300]),
        (0, 1, False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 0.57, False, [0, 0.2, 0.4]),
    ],
)
def test_ticks_are_round(low: float, high: float, *, integers: bool, expected: list[float]) -> None:
    assert ticks(low, high, integers=integers) == expected


@pytest.mark.parametrize("values", [[0.1, 0.5], [-1.0, -0.5], [2.0, 2.0]])
def test_there_is_space_above_the_highest_line(values: list[float]) -> None:
    area = _PlotArea.around(epoch_chart("peak", [1, 2], {"measured": values}))
    assert area.high > max(values)
    assert area.low <= min(values)
