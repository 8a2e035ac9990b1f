"""Drawing of charts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from PIL import Image, ImageDraw

from ._chart import Chart, Line
from ._style import COLORS, GRID, INK, PAPER, font

_WIDTH, _HEIGHT = 800, 500
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 180, 50, 60  # margins
_MAX_TICKS = 5
_HEADROOM = 0.05  # fraction of the height, so that the highest line isn't drawn on the frame
_MAX_LEGEND_LINES = 20


def draw_chart(chart: Chart) -> Image.Image:
    """Draw a chart as an image."""
    canvas = Image.new("RGB", (_WIDTH, _HEIGHT), PAPER)
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
            drawing.text((_WIDTH - _RIGHT + 38, top), line.name[:22], fill=INK, font=font(12))
    return canvas


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
        drawing.line((_LEFT, y, _WIDTH - _RIGHT, y), fill=GRID)
        drawing.text((_LEFT - 8, y), f"{value:g}", fill=INK, font=font(12), anchor="rm")
    for value in ticks(area.left, area.right, integers=chart.integer_x):
        x, _ = area.to_pixels(value, area.low)
        drawing.line((x, _TOP, x, _HEIGHT - _BOTTOM), fill=GRID)
        drawing.text((x, _HEIGHT - _BOTTOM + 6), f"{value:g}", fill=INK, font=font(12), anchor="ma")
    drawing.rectangle((_LEFT, _TOP, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM), outline=INK)
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawing.text((middle, 14), chart.title, fill=INK, font=font(18), anchor="ma")
    drawing.text((middle, _HEIGHT - 26), chart.x_label, fill=INK, font=font(14), anchor="ma")
    drawing.text((_LEFT - 60, _TOP - 22), chart.y_label, fill=INK, font=font(14))
