"""Drawing of markers: error bars, circles, labels and what they mean."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cache

from PIL import Image, ImageDraw

from ._axes import PlotArea
from ._chart import Chart, Marker
from ._labels import Label, place_labels
from ._style import COLORS, GRAY, INK, PAPER, Box, fit_text, font

_RADIUS, _OUTLINE = 6, 2
_CAP = 4  # half the width of the ends of an error bar
_BAR_COLORS = ((185, 185, 185), (245, 165, 165))  # paler than the marker, hollow and filled
_FONT_SIZE = 12
_LABEL_HEIGHT = 16
_MAX_LABEL_WIDTH = 0.45  # of the frame, so that there is space on one side of every marker
_LEADER_LENGTH = 2 * _LABEL_HEIGHT  # labels that are farther away are connected with their marker
_STROKE_STEP = 4  # pixels
_OVERSAMPLING = 8  # of circles, because Pillow draws jagged ones


def draw_markers(drawing: ImageDraw.ImageDraw, chart: Chart, area: PlotArea) -> None:
    """Draw the markers of a chart, the filled ones on top."""
    markers = sorted((marker for marker in chart.markers if marker.is_finite), key=lambda marker: marker.filled)
    for marker in markers:
        _draw_error_bars(drawing, marker, area)
    labels = [_label(marker, area, required=marker.filled or chart.all_labels) for marker in markers]
    strokes = [*_line_points(chart, area), *_error_bar_points(markers, area)]
    boxes = [_circle(label.x, label.y) for label in labels]
    places = place_labels(labels, _shrunk(area.frame), boxes, strokes)
    for label, place in zip(labels, places, strict=True):
        if place is not None:
            _draw_leader(drawing, label, place)
    for marker, box in zip(markers, boxes, strict=True):
        _draw_circle(drawing, box, filled=marker.filled)
    for marker, place in zip(markers, places, strict=True):
        if place is not None:
            _draw_label(drawing, marker, place, area)


def draw_marker_meanings(drawing: ImageDraw.ImageDraw, chart: Chart, area: PlotArea) -> None:
    """Draw a filled and a hollow marker with what they mean, below the title."""
    meanings = [(chart.filled_meaning, True), (chart.hollow_meaning, False)]
    shown = [(text, filled) for text, filled in meanings if text]
    widths = [font(_FONT_SIZE).getlength(text) + 4 * _RADIUS + 12 for text, _ in shown]
    left, y = (area.frame[0] + area.frame[2] - sum(widths)) / 2, 48
    for (text, filled), width in zip(shown, widths, strict=True):
        _draw_circle(drawing, _circle(left + _RADIUS, y), filled=filled)
        drawing.text((left + 2 * _RADIUS + 6, y), text, fill=INK, font=font(_FONT_SIZE), anchor="lm")
        left += width


def _draw_error_bars(drawing: ImageDraw.ImageDraw, marker: Marker, area: PlotArea) -> None:
    color = _BAR_COLORS[marker.filled]
    for (left, top), (right, bottom) in _error_bars(marker, area):
        drawing.line((left, top, right, bottom), fill=color)
        # The caps are perpendicular to the bar.
        x, y = (_CAP, 0) if left == right else (0, _CAP)
        for end_x, end_y in ((left, top), (right, bottom)):
            drawing.line((end_x - x, end_y - y, end_x + x, end_y + y), fill=color)


def _error_bars(marker: Marker, area: PlotArea) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Yield the ends of the error bars of a marker in pixels."""
    if marker.y_error:
        top, bottom = marker.y + marker.y_error, marker.y - marker.y_error
        yield area.to_pixels(marker.x, top), area.to_pixels(marker.x, bottom)
    if marker.x_range:
        left, right = marker.x_range
        yield area.to_pixels(left, marker.y), area.to_pixels(right, marker.y)


def _draw_circle(drawing: ImageDraw.ImageDraw, box: Box, *, filled: bool) -> None:
    left, top = round(box[0]), round(box[1])
    drawing.bitmap((left, top), _disk(_RADIUS), fill=COLORS[0] if filled else GRAY)
    if not filled:
        drawing.bitmap((left + _OUTLINE, top + _OUTLINE), _disk(_RADIUS - _OUTLINE), fill=PAPER)


@cache
def _disk(radius: int) -> Image.Image:
    """Return the mask of a smooth disk."""
    side = (2 * radius + 1) * _OVERSAMPLING
    mask = Image.new("L", (side, side))
    ImageDraw.Draw(mask).ellipse((0, 0, side - 1, side - 1), fill=255)
    return mask.reduce(_OVERSAMPLING)


def _draw_leader(drawing: ImageDraw.ImageDraw, label: Label, place: Box) -> None:
    """Connect a label with its marker if it isn't beside it."""
    if abs((place[1] + place[3]) / 2 - label.y) < _LEADER_LENGTH:
        return
    x = min(max(label.x, place[0]), place[2])
    y = place[1] if place[1] > label.y else place[3]
    drawing.line((label.x, label.y, x, y), fill=GRAY)


def _draw_label(drawing: ImageDraw.ImageDraw, marker: Marker, place: Box, area: PlotArea) -> None:
    center = ((place[0] + place[2]) / 2, (place[1] + place[3]) / 2)
    text, color = _label_text(marker, area), INK if marker.filled else GRAY
    # The rim keeps letters readable on lines.
    drawing.text(center, text, fill=color, font=font(_FONT_SIZE), anchor="mm", stroke_width=2, stroke_fill=PAPER)


def _label_text(marker: Marker, area: PlotArea) -> str:
    return fit_text(marker.label, _FONT_SIZE, _MAX_LABEL_WIDTH * (area.frame[2] - area.frame[0]))


def _label(marker: Marker, area: PlotArea, *, required: bool) -> Label:
    width = font(_FONT_SIZE).getlength(_label_text(marker, area))
    return Label(*area.to_pixels(marker.x, marker.y), width, _LABEL_HEIGHT, required)


def _line_points(chart: Chart, area: PlotArea) -> Iterator[tuple[float, float]]:
    """Yield points on the lines of a chart in pixels, closer together than a label is high."""
    for line in chart.lines:
        for segment in area.segments(line):
            for start, end in itertools.pairwise(segment):
                yield from _points_between(start, end)


def _error_bar_points(markers: Sequence[Marker], area: PlotArea) -> Iterator[tuple[float, float]]:
    for marker in markers:
        for start, end in _error_bars(marker, area):
            yield from _points_between(start, end)


def _points_between(start: tuple[float, float], end: tuple[float, float]) -> Iterator[tuple[float, float]]:
    length = max(abs(end[0] - start[0]), abs(end[1] - start[1]))
    steps = max(int(length / _STROKE_STEP), 1)
    for step in range(steps + 1):
        fraction = step / steps
        yield start[0] + (end[0] - start[0]) * fraction, start[1] + (end[1] - start[1]) * fraction


def _circle(x: float, y: float) -> Box:
    return x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS


def _shrunk(frame: Box) -> Box:
    return frame[0] + 3, frame[1] + 3, frame[2] - 3, frame[3] - 3
