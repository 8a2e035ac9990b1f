"""Charts of markers with labels and error bars, side by side."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ._chart import Chart, Marker
from ._figure import figure_png, new_figure
from ._labels import Box, Label, place_labels
from ._style import GRAY, INK, PAPER, hex_color
from ._text import drawable_texts, prepare_texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

_WIDTH, _HEIGHT = 800, 500  # pixels of each chart
_PADDING = 0.12  # fraction of the data's range left free on each side of markers
_MIN_RANGE = 1e-3  # of an axis, as a fraction of its values: ticks have up to six digits
_MARKER_SIZE = 9  # points
_MARKER_RADIUS = 7  # pixels, with its outline
_BAR_COLORS = ("#b9b9b9", "#f5a5a5")  # paler than the marker, hollow and filled
_SMALL_FONT = 9  # points
_MAX_LABEL, _MAX_TITLE = 45, 80  # characters
_Y_LABEL_WIDTH = 60  # characters of a line
_LEADER_LENGTH = 30  # pixels; labels that are farther away are connected with their marker
_STROKE_STEP = 4  # pixels
_FRAME_GAP = 3  # pixels between labels and the frame


def draw_charts(charts: Sequence[Chart]) -> bytes:
    """Draw charts side by side as PNG, each of 800 x 500 pixels."""
    figure = new_figure(_WIDTH * len(charts), _HEIGHT)
    axes = [figure.add_subplot(1, len(charts), number) for number in range(1, len(charts) + 1)]
    for area, chart in zip(axes, charts, strict=True):
        _draw_chart(area, chart)
    _arrange(figure)
    for area, chart in zip(axes, charts, strict=True):
        _draw_labels(area, chart)
    return figure_png(figure)


def padded_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of values with space around it, but no negative one for values that are never negative."""
    low, high = min(values), max(values)
    size = max(abs(low), abs(high)) or 1.0
    middle, half = (low + high) / 2, max((high - low) * (0.5 + _PADDING), size * _MIN_RANGE / 2)
    return max(middle - half, 0.0 if low >= 0 else -math.inf), middle + half


def _arrange(figure: Figure) -> None:
    """Fix the places of the axes, because labels are placed by pixels."""
    prepare_texts(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _finite_markers(chart: Chart) -> list[Marker]:
    """Return the markers that can be drawn, the filled ones last and so on top."""
    return sorted((marker for marker in chart.markers if marker.is_finite), key=lambda marker: marker.filled)


def _draw_chart(area: Axes, chart: Chart) -> None:
    title, x_label = drawable_texts([chart.title, chart.x_label], _MAX_TITLE)
    area.set_title(title, fontsize=14, color=INK, pad=30)
    area.set_xlabel(x_label, color=INK)
    (y_label,) = drawable_texts([chart.y_label], 2 * _Y_LABEL_WIDTH)
    area.set_ylabel(textwrap.fill(y_label, _Y_LABEL_WIDTH), color=INK)
    area.grid(visible=True, color="#e1e1e1")
    area.set_axisbelow(True)
    markers = _finite_markers(chart)
    if markers:
        area.set_xlim(*padded_range([x for marker in markers for x in (marker.x, *(marker.x_range or ()))]))
        errors = [sign * (marker.y_error or 0.0) + marker.y for marker in markers for sign in (-1, 1)]
        area.set_ylim(*(chart.y_limits or padded_range(errors)))
    area.ticklabel_format(useOffset=False)
    area.plot(chart.line.x, chart.line.y, color=hex_color(0), zorder=2)
    for marker in markers:
        _draw_marker(area, marker)
    _draw_meanings(area, chart)


def _draw_marker(area: Axes, marker: Marker) -> None:
    bar: dict[str, Any] = {
        "ecolor": _BAR_COLORS[marker.filled],
        "elinewidth": 1.2,
        "capsize": 4,
        "fmt": "none",
        "zorder": 1,
    }
    if marker.y_error:
        area.errorbar([marker.x], [marker.y], yerr=marker.y_error, **bar)
    if marker.x_range:
        left, right = marker.x_range
        area.errorbar([marker.x], [marker.y], xerr=[[marker.x - left], [right - marker.x]], **bar)
    area.plot([marker.x], [marker.y], zorder=4 + marker.filled, **_marker_style(filled=marker.filled))


def _marker_style(*, filled: bool) -> dict[str, Any]:
    edge = hex_color(0) if filled else GRAY
    face = edge if filled else PAPER
    return {
        "marker": "o",
        "markersize": _MARKER_SIZE,
        "markerfacecolor": face,
        "markeredgecolor": edge,
        "markeredgewidth": 1.5,
        "linestyle": "none",
    }


def _draw_meanings(area: Axes, chart: Chart) -> None:
    """Draw a filled and a hollow marker with what they mean, above the axes."""
    meanings = [(chart.filled_meaning, True), (chart.hollow_meaning, False)]
    shown = [(text, filled) for text, filled in meanings if text]
    if not shown:
        return
    handles = [area.plot([], [], label=text, **_marker_style(filled=filled))[0] for text, filled in shown]
    area.legend(
        handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False, fontsize=_SMALL_FONT
    )


def _draw_labels(area: Axes, chart: Chart) -> None:
    markers = _finite_markers(chart)
    texts = _write_labels(area, markers)
    labels = [
        _measure(area, text, marker, required=marker.filled or chart.all_labels)
        for text, marker in zip(texts, markers, strict=True)
    ]
    circles = [_circle(label) for label in labels]
    strokes = [*_line_points(area, chart), *_error_bar_points(area, markers)]
    frame = area.get_window_extent().padded(-_FRAME_GAP)
    places = place_labels(labels, (frame.x0, frame.y0, frame.x1, frame.y1), circles, strokes)
    for text, label, place in zip(texts, labels, places, strict=True):
        if place is None:
            text.remove()
            continue
        center = (place[0] + place[2]) / 2, (place[1] + place[3]) / 2
        text.set_position(center)
        if abs(center[1] - label.y) >= _LEADER_LENGTH:
            arrow = {"arrowstyle": "-", "color": GRAY, "linewidth": 0.8}
            area.annotate("", text.xy, xytext=center, textcoords="figure pixels", arrowprops=arrow, zorder=3)


def _write_labels(area: Axes, markers: Sequence[Marker]) -> list[Annotation]:
    """Write the labels of markers, so that they can be measured and then moved to their places."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    texts = [
        area.annotate(
            text,
            (marker.x, marker.y),
            xytext=(0, 0),
            textcoords="figure pixels",
            ha="center",
            va="center",
            fontsize=_SMALL_FONT,
            color=INK if marker.filled else GRAY,
            path_effects=[withStroke(linewidth=3, foreground=PAPER)],  # keeps letters readable on lines
            zorder=6,
        )
        for marker, text in zip(markers, drawable_texts([item.label for item in markers], _MAX_LABEL), strict=True)
    ]
    prepare_texts(area.figure)
    return texts


def _measure(area: Axes, text: Annotation, marker: Marker, *, required: bool) -> Label:
    extent = text.get_window_extent()
    x, y = area.transData.transform((marker.x, marker.y)).tolist()
    return Label(x, y, extent.width, extent.height, required)


def _circle(label: Label) -> Box:
    return (
        label.x - _MARKER_RADIUS,
        label.y - _MARKER_RADIUS,
        label.x + _MARKER_RADIUS,
        label.y + _MARKER_RADIUS,
    )


def _line_points(area: Axes, chart: Chart) -> Iterator[tuple[float, float]]:
    """Yield points on the line of a chart in pixels, closer together than a label is high."""
    points = list(zip(chart.line.x, chart.line.y, strict=True))
    for start, end in itertools.pairwise(points):
        yield from _points_between(area, start, end)


def _error_bar_points(area: Axes, markers: Sequence[Marker]) -> Iterator[tuple[float, float]]:
    for marker in markers:
        if marker.y_error:
            top, bottom = marker.y + marker.y_error, marker.y - marker.y_error
            yield from _points_between(area, (marker.x, top), (marker.x, bottom))
        if marker.x_range:
            left, right = marker.x_range
            yield from _points_between(area, (left, marker.y), (right, marker.y))


def _points_between(area: Axes, start: tuple[float, float], end: tuple[float, float]) -> Iterator[tuple[float, float]]:
    (left, top), (right, bottom) = area.transData.transform((start, end)).tolist()
    steps = max(int(max(abs(right - left), abs(bottom - top)) / _STROKE_STEP), 1)
    for step in range(steps + 1):
        fraction = step / steps
        yield left + (right - left) * fraction, top + (bottom - top) * fraction
