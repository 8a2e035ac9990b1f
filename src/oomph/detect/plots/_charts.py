"""Line charts, drawn with Pillow alone so that every run has plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from ..dataset import Pixels
from ..metrics import Scores
from ._drawing import COLORS, font

_WIDTH, _HEIGHT = 800, 500
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 180, 50, 60  # margins
_INK, _GRID, _PAPER = (40, 40, 40), (225, 225, 225), (255, 255, 255)
_MAX_TICKS = 5
_HEADROOM = 0.05  # fraction of the height, so that the highest line isn't drawn on the frame
_MAX_LEGEND_LINES = 20
_RECALL_POINTS = 101


@dataclass(frozen=True)
class Line:
    """One line of a chart; values that aren't finite leave a gap."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """A line chart.

    Attributes:
        title, x_label, y_label: texts.
        lines: the lines to draw.
        y_limits: lowest and highest y; from the data if None.
        integer_x: True if x has integer values only, such as epochs.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    y_limits: tuple[float, float] | None = None
    integer_x: bool = False


def draw_chart(chart: Chart) -> Pixels:
    """Draw a chart as an image."""
    canvas = Image.new("RGB", (_WIDTH, _HEIGHT), _PAPER)
    drawing = ImageDraw.Draw(canvas)
    area = _PlotArea.around(chart)
    _draw_axes(drawing, chart, area)
    for index, line in enumerate(chart.lines):
        color = COLORS[index % len(COLORS)]
        for segment in _segments(line, area):
            if len(segment) > 1:
                drawing.line(segment, fill=color, width=2, joint="curve")
            else:
                x, y = segment[0]
                drawing.ellipse((x - 3, y - 3, x + 3, y + 3), fill=color)
        if index < _MAX_LEGEND_LINES:
            top = _TOP + 18 * index
            drawing.line((_WIDTH - _RIGHT + 12, top + 7, _WIDTH - _RIGHT + 32, top + 7), fill=color, width=3)
            drawing.text((_WIDTH - _RIGHT + 38, top), line.name[:22], fill=_INK, font=font(12))
    return np.asarray(canvas)


@dataclass(frozen=True)
class _PlotArea:
    """The values at the edges of the plot."""

    left: float
    right: float
    low: float
    high: float

    @classmethod
    def around(cls, chart: Chart) -> _PlotArea:
        xs = [value for line in chart.lines for value in line.x if math.isfinite(value)] or [0.0, 1.0]
        ys = [value for line in chart.lines for value in line.y if math.isfinite(value)] or [0.0, 1.0]
        lowest, highest = min(0.0, *ys), max(ys)
        low, high = chart.y_limits or (lowest, highest + _HEADROOM * (highest - lowest))
        left, right = min(xs), max(xs)
        return cls(left, max(right, left + 1e-9), low, max(high, low + 1e-9))

    def to_pixels(self, x: float, y: float) -> tuple[float, float]:
        x_fraction = (x - self.left) / (self.right - self.left)
        y_fraction = (y - self.low) / (self.high - self.low)
        return (
            _LEFT + x_fraction * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - y_fraction * (_HEIGHT - _TOP - _BOTTOM),
        )


def _segments(line: Line, area: _PlotArea) -> list[list[tuple[float, float]]]:
    """Return the points of a line in pixels, split where a value is missing."""
    segments: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(line.x, line.y, strict=True):
        if math.isfinite(x) and math.isfinite(y):
            segments[-1].append(area.to_pixels(x, min(max(y, area.low), area.high)))
        elif segments[-1]:
            segments.append([])
    return [segment for segment in segments if segment]


def ticks(low: float, high: float, *, integers: bool = False) -> list[float]:
    """Return up to about six round values between two others."""
    min_step = max((high - low) / _MAX_TICKS, 1.0 if integers else 0.0)
    power = 10.0 ** math.floor(math.log10(min_step))
    # With a tolerance, because 0.2 is not exactly five times 0.04 in floating point.
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor > min_step * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _draw_axes(drawing: ImageDraw.ImageDraw, chart: Chart, area: _PlotArea) -> None:
    for value in ticks(area.low, area.high):
        _, y = area.to_pixels(area.left, value)
        drawing.line((_LEFT, y, _WIDTH - _RIGHT, y), fill=_GRID)
        drawing.text((_LEFT - 8, y), f"{value:g}", fill=_INK, font=font(12), anchor="rm")
    for value in ticks(area.left, area.right, integers=chart.integer_x):
        x, _ = area.to_pixels(value, area.low)
        drawing.line((x, _TOP, x, _HEIGHT - _BOTTOM), fill=_GRID)
        drawing.text((x, _HEIGHT - _BOTTOM + 6), f"{value:g}", fill=_INK, font=font(12), anchor="ma")
    drawing.rectangle((_LEFT, _TOP, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM), outline=_INK)
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawing.text((middle, 14), chart.title, fill=_INK, font=font(18), anchor="ma")
    drawing.text((middle, _HEIGHT - 26), chart.x_label, fill=_INK, font=font(14), anchor="ma")
    drawing.text((_LEFT - 60, _TOP - 22), chart.y_label, fill=_INK, font=font(14))


def precision_recall_chart(scores: Scores) -> Chart:
    """Return the precision-recall curves at IoU 0.5 of each class and of their mean."""
    classes = [item for item in scores.by_class if item.curve]
    recalls = tuple(float(value) for value in np.linspace(0, 1, _RECALL_POINTS))
    lines = [
        Line(f"{item.name} {item.map50 or 0:.3f}", recalls, item.curve) for item in classes[: _MAX_LEGEND_LINES - 1]
    ]
    if classes:
        mean = tuple(float(value) for value in np.mean([item.curve for item in classes], 0))
        lines.insert(0, Line(f"all {scores.map50:.3f}", recalls, mean))
    return Chart("precision and recall at IoU 0.5", "recall", "precision", tuple(lines), (0.0, 1.0))


def epoch_chart(title: str, epochs: Sequence[float], values: Mapping[str, Sequence[float]]) -> Chart:
    """Return a chart of values per epoch, such as losses or mAP."""
    lines = tuple(Line(name, tuple(epochs), tuple(column)) for name, column in values.items())
    return Chart(title, "epoch", "", lines, integer_x=True)
