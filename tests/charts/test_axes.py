from __future__ import annotations

import math

import pytest

from oomph.charts import Chart, Line, Marker
from oomph.charts._axes import AxisLimits, PlotArea, ticks


def scatter(*markers: Marker) -> Chart:
    return Chart("title", "x", "y", (), markers=markers)


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
    limits = AxisLimits.around(Chart("title", "x", "y", (Line("a", (1, 2), values),)))
    assert limits.high > max(values)
    assert limits.low <= min(0, *values)


def test_axes_end_shortly_before_and_after_markers_and_their_error_bars() -> None:
    limits = AxisLimits.around(scatter(Marker(10, 0.60, "a", True, 0.01), Marker(20, 0.64, "b", False)))
    assert 8 < limits.left < 10
    assert 20 < limits.right < 22
    assert 0.57 < limits.low < 0.59
    assert 0.64 < limits.high < 0.66


def test_values_that_are_never_negative_have_no_negative_axis() -> None:
    limits = AxisLimits.around(scatter(Marker(0.1, -1, "a", True), Marker(20, 1, "b", False)))
    assert limits.left == 0
    assert limits.low < -1


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 1e9, 1e-7])
def test_ticks_of_equal_values_can_be_told_apart(value: float) -> None:
    limits = AxisLimits.around(scatter(Marker(value, value, "a", True), Marker(value, value, "b", True)))
    assert limits.low <= value < limits.high
    texts = [f"{tick:g}" for tick in ticks(limits.low, limits.high)]
    assert len(set(texts)) == len(texts) > 1


def test_points_become_pixels_and_gaps_split_a_line() -> None:
    area = PlotArea((100, 50, 300, 150), AxisLimits(0, 2, 0, 1))
    assert area.to_pixels(0, 0) == (100, 150)
    assert area.to_pixels(1, 1) == (200, 50)
    line = Line("a", (0, 1, math.nan, 2), (0, 1, 0.5, 9))
    assert area.segments(line) == [[(100, 150), (200, 50)], [(300, 50)]]
