from __future__ import annotations

import math

import pytest
from PIL import Image

from oomph.charts import COLORS, Chart, Line, draw_chart
from oomph.charts._draw import _PlotArea, ticks


def line_chart(x: tuple[float, ...], y: tuple[float, ...]) -> Chart:
    return Chart("title", "x", "y", (Line("a", x, y),), integer_x=True)


def has_color(image: Image.Image, color: tuple[int, int, int]) -> bool:
    return color in {pixel for _, pixel in image.getcolors(image.width * image.height) or ()}


def test_every_line_is_drawn_and_gaps_are_tolerated() -> None:
    lines = (Line("a", (0, 1, 2, 3), (0.2, 0.4, math.nan, 1.0)), Line("b", (0, 1, 2, 3), (0.5,) * 4))
    image = draw_chart(Chart("title", "x", "y", lines))
    assert image.size == (800, 500)
    plot = image.crop((90, 60, 600, 430))
    assert has_color(plot, COLORS[0])
    assert has_color(plot, COLORS[1])


@pytest.mark.parametrize("values", [(), (3.0,)])
def test_charts_with_few_points_are_drawn(values: tuple[float, ...]) -> None:
    assert draw_chart(line_chart(tuple(range(len(values))), values)).size == (800, 500)


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


@pytest.mark.parametrize("values", [(0.1, 0.5), (-1.0, -0.5), (2.0, 2.0)])
def test_there_is_space_above_the_highest_line(values: tuple[float, float]) -> None:
    area = _PlotArea.around(line_chart((1, 2), values))
    assert area.high > max(values)
    assert area.low <= min(values)
