"""Axes: from values to pixels, and the drawing around the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import ImageDraw

from ._chart import Chart, Line
from ._style import GRID, INK, Box, fit_text, font

_MAX_TICKS = 5
_HEADROOM = 0.05  # fraction of the height, so that the highest line isn't drawn on the frame
_PADDING = 0.12  # fraction of the data's range left free on each side of markers
_MIN_RANGE = 1e-3  # of an axis, as a fraction of its values: ticks have up to six digits


@dataclass(frozen=True)
class AxisLimits:
    """The values at the edges of the plot."""

    left: float
    right: float
    low: float
    high: float

    @classmethod
    def around(cls, chart: Chart) -> AxisLimits:
        """Return limits that show all data of a chart."""
        markers = [marker for marker in chart.markers if marker.is_finite]
        xs = [value for line in chart.lines for value in line.x if math.isfinite(value)]
        ys = [value for line in chart.lines for value in line.y if math.isfinite(value)]
        if markers:
            errors = [(marker.y, marker.y_error or 0.0) for marker in markers]
            ys += [y + sign * error for y, error in errors for sign in (-1, 1)]
            xs += [x for marker in markers for x in (marker.x, *(marker.x_range or ()))]
            return cls(*_padded(xs), *(chart.y_limits or _padded(ys)))
        xs, ys = xs or [0.0, 1.0], ys or [0.0, 1.0]
        lowest, highest = min(0.0, *ys), max(ys)
        low, high = chart.y_limits or (lowest, highest + _HEADROOM * (highest - lowest))
        left, right = min(xs), max(xs)
        return cls(left, max(right, left + 1e-9), low, max(high, low + 1e-9))


def _padded(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of values with space around it, but no negative one for values that are never negative."""
    low, high = min(values), max(values)
    size = max(abs(low), abs(high)) or 1.0
    middle, half = (low + high) / 2, max((high - low) * (0.5 + _PADDING), size * _MIN_RANGE / 2)
    return max(middle - half, 0.0 if low >= 0 else -math.inf), middle + half


@dataclass(frozen=True)
class PlotArea:
    """The frame of the plot in pixels, and the values at its edges."""

    frame: Box
    limits: AxisLimits

    def to_pixels(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point is drawn."""
        left, top, right, bottom = self.frame
        x_fraction = (x - self.limits.left) / (self.limits.right - self.limits.left)
        y_fraction = (y - self.limits.low) / (self.limits.high - self.limits.low)
        return left + x_fraction * (right - left), bottom - y_fraction * (bottom - top)

    def segments(self, line: Line) -> list[list[tuple[float, float]]]:
        """Return the points of a line in pixels, split where a value is missing."""
        segments: list[list[tuple[float, float]]] = [[]]
        for x, y in zip(line.x, line.y, strict=True):
            if math.isfinite(x) and math.isfinite(y):
                segments[-1].append(self.to_pixels(x, min(max(y, self.limits.low), self.limits.high)))
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


def draw_axes(drawing: ImageDraw.ImageDraw, chart: Chart, area: PlotArea) -> None:
    """Draw frame, grid, ticks, title and labels."""
    (left, top, right, bottom), limits = area.frame, area.limits
    for value in ticks(limits.low, limits.high):
        _, y = area.to_pixels(limits.left, value)
        drawing.line((left, y, right, y), fill=GRID)
        drawing.text((left - 8, y), f"{value:g}", fill=INK, font=font(12), anchor="rm")
    for value in ticks(limits.left, limits.right, integers=chart.integer_x):
        x, _ = area.to_pixels(value, limits.low)
        drawing.line((x, top, x, bottom), fill=GRID)
        drawing.text((x, bottom + 6), f"{value:g}", fill=INK, font=font(12), anchor="ma")
    drawing.rectangle(area.frame, outline=INK)
    width, middle = drawing.im.size[0], (left + right) / 2
    room = 2 * min(middle, width - middle)
    drawing.text((middle, 14), fit_text(chart.title, 18, room), fill=INK, font=font(18), anchor="ma")
    drawing.text((middle, bottom + 34), fit_text(chart.x_label, 14, room), fill=INK, font=font(14), anchor="ma")
    drawing.text((left - 60, top - 22), fit_text(chart.y_label, 14, width - left + 50), fill=INK, font=font(14))
