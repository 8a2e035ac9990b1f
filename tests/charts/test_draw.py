from __future__ import annotations

import math

import pytest
from PIL import Image

from oomph.charts import COLORS, Chart, Line, draw_chart, draw_charts
from oomph.charts._draw import plot_area


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


def test_a_line_without_a_name_needs_no_legend() -> None:
    named, unnamed = (Chart("", "", "", (Line(name, (0, 1), (0, 1)),)) for name in ("a", ""))
    assert plot_area(unnamed).frame[2] > plot_area(named).frame[2]
    frame = plot_area(unnamed).frame
    assert not has_color(draw_chart(unnamed).crop((int(frame[2]) + 3, 0, 800, 500)), COLORS[0])


def test_charts_are_drawn_side_by_side() -> None:
    left, right = line_chart((0, 1), (0, 1)), line_chart((0, 1), (1, 0))
    image = draw_charts([left, right])
    assert image.size == (1600, 500)
    assert image.crop((0, 0, 800, 500)).tobytes() == draw_chart(left).tobytes()
    assert image.crop((800, 0, 1600, 500)).tobytes() == draw_chart(right).tobytes()
