from __future__ import annotations

import io
import math

import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from PIL import Image

from oomph.charts import Chart, Line, Marker, draw_charts, new_figure
from oomph.charts._scatter import _arrange, _draw_chart, _draw_labels, padded_range

NO_LINE = Line((), ())
# The corners are far away from a marker in the middle.
CORNERS = (Marker(0, 0, "", False), Marker(2, 2, "", False))


def scatter(*markers: Marker) -> Chart:
    return Chart("title", "x", "y", NO_LINE, (*CORNERS, *markers))


def drawn(chart: Chart) -> Axes:
    figure = new_figure(800, 500)
    area = figure.add_subplot()
    _draw_chart(area, chart)
    _arrange(figure)
    _draw_labels(area, chart)
    return area


def labels(area: Axes) -> list[str]:
    return [text.get_text() for text in area.texts if text.get_text()]


@pytest.mark.parametrize(("values", "low", "high"), [((10, 20), 8.8, 21.2), ((0.1, 20), 0, 22.5), ((-1, 1), -1.3, 1.3)])
def test_axes_end_shortly_before_and_after_the_values(values: tuple[float, ...], low: float, high: float) -> None:
    assert padded_range(values) == pytest.approx((low, high), rel=0.06)


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0, 1e9, 1e-7])
def test_ticks_of_equal_values_can_be_told_apart(value: float) -> None:
    area = drawn(Chart("", "", "", NO_LINE, (Marker(value, value, "", True), Marker(value, value, "", True))))
    area.figure.canvas.draw()
    texts = [label.get_text() for label in area.get_yticklabels()]
    assert len(set(texts)) == len(texts) > 1


def test_charts_are_drawn_side_by_side() -> None:
    chart = scatter(Marker(1, 1, "middle", True))
    for count in (1, 2):
        with Image.open(io.BytesIO(draw_charts([chart] * count))) as image:
            assert (image.format, image.size) == ("PNG", (800 * count, 500))


def test_error_bars_span_the_error_and_the_axes_include_them() -> None:
    area = drawn(scatter(Marker(1, 1, "", True, 5, (0.8, 7))))
    bars = [container for container in area.containers if isinstance(container, ErrorbarContainer)]
    vertical, horizontal = [bar.lines[2][0].get_segments()[0] for bar in bars]
    assert vertical[:, 1].tolist() == [-4, 6]
    assert horizontal[:, 0].tolist() == pytest.approx([0.8, 7])
    assert area.get_ylim()[0] < -4
    assert area.get_xlim()[1] > 7


def test_markers_that_are_not_finite_are_left_out() -> None:
    bad = (
        Marker(math.nan, 1, "nan", True),
        Marker(1, math.inf, "inf", True),
        Marker(1, 1, "bar", True, math.nan),
        Marker(1, 1, "range", True, x_range=(1, math.nan)),
    )
    assert draw_charts([scatter(*bad)]) == draw_charts([scatter()])


@pytest.mark.parametrize(("x", "y"), [(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)])
@pytest.mark.parametrize("label", ["img 320", "$x_$", "a value that is much longer than any picture is wide, " * 5])
def test_a_label_stays_inside_the_frame_and_off_its_marker(x: float, y: float, label: str) -> None:
    area = drawn(Chart("", "", "", NO_LINE, (*CORNERS, Marker(x, y, label, True))))
    (text,) = [text for text in area.texts if text.get_text()]
    box, frame = text.get_window_extent(), area.get_window_extent()
    assert frame.x0 < box.x0 < box.x1 < frame.x1
    assert frame.y0 < box.y0 < box.y1 < frame.y1
    assert not box.contains(*area.transData.transform((x, y)))


def test_labels_of_hollow_markers_are_drawn_where_there_is_space_or_if_required() -> None:
    crowd = tuple(Marker(1, 1, f"number {number}", False) for number in range(20))
    few, every = (Chart("", "", "", NO_LINE, crowd, all_labels=all_labels) for all_labels in (False, True))
    assert 2 < len(labels(drawn(few))) < 20
    assert len(labels(drawn(every))) == 20


def test_the_meaning_of_markers_is_shown_above_the_axes() -> None:
    chart = Chart("", "", "", NO_LINE, CORNERS, filled_meaning="on the front", hollow_meaning="not on it")
    legend = drawn(chart).get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["on the front", "not on it"]
    assert drawn(scatter()).get_legend() is None
