from __future__ import annotations

import math

import pytest
from PIL import Image, ImageChops

from oomph.charts import COLORS, Chart, Line, Marker, draw_chart
from oomph.charts._draw import plot_area
from oomph.charts._style import GRAY, INK, PAPER

# The corners are far away from the marker in the middle.
CORNERS = (Marker(0, 0, "", False), Marker(2, 2, "", False))
SIZE = (800, 500)


def scatter(*markers: Marker) -> Chart:
    return Chart("", "", "", (), markers=(*CORNERS, *markers))


def pixel(image: Image.Image, x: float, y: float) -> tuple[int, ...]:
    color = image.getpixel((round(x), round(y)))
    assert isinstance(color, tuple)
    return color


def where_different(first: Chart, second: Chart) -> tuple[int, int, int, int]:
    """Return the box of the pixels in which two charts differ."""
    box = ImageChops.difference(draw_chart(first), draw_chart(second)).getbbox()
    assert box is not None
    return box


def test_a_filled_marker_is_colored_and_a_hollow_one_is_not() -> None:
    for filled, color in ((True, COLORS[0]), (False, PAPER)):
        chart = scatter(Marker(1, 1, "", filled))
        x, y = plot_area(chart).to_pixels(1, 1)
        image = draw_chart(chart)
        assert pixel(image, x, y) == color
        assert pixel(image, x + 3, y) == color
        assert pixel(image, x + 5, y) == (COLORS[0] if filled else GRAY)
        assert pixel(image, x + 8, y + 8) == PAPER


def test_a_line_does_not_shine_through_a_hollow_marker() -> None:
    chart = Chart("", "", "", (Line("", (0, 2), (0, 2)),), markers=scatter(Marker(1, 1, "", False)).markers)
    x, y = plot_area(chart).to_pixels(1, 1)
    assert pixel(draw_chart(chart), x, y) == PAPER


def test_an_error_bar_spans_the_error() -> None:
    plain, barred = scatter(Marker(1, 1, "", True)), scatter(Marker(1, 1, "", True, 0.5))
    area = plot_area(barred)
    assert area == plot_area(plain)
    (x, top), (_, bottom) = area.to_pixels(1, 1.5), area.to_pixels(1, 0.5)
    assert where_different(plain, barred) == pytest.approx((x - 4, top, x + 4, bottom), abs=1)


@pytest.mark.parametrize(("x", "y"), [(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)])
@pytest.mark.parametrize("label", ["img 320", "a value that is much longer than any picture is wide, " * 5])
def test_a_label_stays_inside_the_frame_and_off_its_marker(x: float, y: float, label: str) -> None:
    unlabeled, labeled = scatter(Marker(x, y, "", True)), scatter(Marker(x, y, label, True))
    area = plot_area(labeled)
    left, top, right, bottom = where_different(unlabeled, labeled)
    assert area.frame[0] < left < right < area.frame[2]
    assert area.frame[1] < top < bottom < area.frame[3]
    assert pixel(draw_chart(labeled), *area.to_pixels(x, y)) == COLORS[0]


def test_the_meaning_of_markers_is_shown_above_the_frame() -> None:
    chart = Chart("", "", "", (), markers=CORNERS, filled_meaning="on the front", hollow_meaning="not on it")
    top = plot_area(chart).frame[1]
    strip = draw_chart(chart).crop((0, 0, SIZE[0], int(top) - 2))
    assert {COLORS[0], GRAY, INK} <= {color for _, color in strip.getcolors(SIZE[0] * SIZE[1]) or ()}


def test_markers_that_are_not_finite_are_left_out() -> None:
    bad = (Marker(math.nan, 1, "nan", True), Marker(1, math.inf, "inf", True), Marker(1, 1, "bar", True, math.nan))
    assert draw_chart(scatter(*bad)).tobytes() == draw_chart(scatter()).tobytes()


def test_a_horizontal_bar_spans_its_range() -> None:
    plain, barred = scatter(Marker(1, 1, "", True)), scatter(Marker(1, 1, "", True, x_range=(0.8, 1.5)))
    area = plot_area(barred)
    assert area == plot_area(plain)
    (left, y), (right, _) = area.to_pixels(0.8, 1), area.to_pixels(1.5, 1)
    assert where_different(plain, barred) == pytest.approx((left, y - 4, right, y + 4), abs=1)


def test_the_axis_has_space_for_horizontal_bars() -> None:
    limits = plot_area(scatter(Marker(1, 1, "", True, x_range=(0.5, 5)))).limits
    assert limits.right > 5
    assert (
        draw_chart(scatter(Marker(1, 1, "", True, x_range=(1, math.nan)))).tobytes() == draw_chart(scatter()).tobytes()
    )


def test_labels_of_hollow_markers_can_be_required() -> None:
    crowd = tuple(Marker(1, 1, f"number {number}", False) for number in range(20))
    few, every = (
        Chart("", "", "", (), markers=(*CORNERS, *crowd), all_labels=all_labels) for all_labels in (False, True)
    )
    _, top, _, bottom = where_different(few, every)
    assert bottom - top > 100
