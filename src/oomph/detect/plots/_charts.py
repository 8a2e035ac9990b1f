"""Curves as pictures: a plain line chart with Pillow alone, so that a run has plots wherever it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from ..dataset._pixels import Pixels
from ..metrics._scores import Scores
from ._drawing import COLOURS, font

_WIDE, _HIGH = 800, 500
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 180, 50, 60
_INK, _FAINT, _PAPER = (40, 40, 40), (225, 225, 225), (255, 255, 255)
_TICKS = 5
_ROOM = 0.05  # of the height, so that the highest line isn't drawn on the frame
_NAMED = 20  # lines that the legend has room for


@dataclass(frozen=True)
class Line:
    """One line of a chart; values that aren't finite leave a gap."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """What a chart shows.

    Attributes:
        title, across, up: its words.
        lines: what is drawn.
        limits: lowest and highest value of y; as wide as the data if None.
        whole: whether there is nothing between two whole numbers of x, such as epochs.
    """

    title: str
    across: str
    up: str
    lines: tuple[Line, ...]
    limits: tuple[float, float] | None = None
    whole: bool = False


def draw_chart(chart: Chart) -> Pixels:
    """The chart as an image."""
    picture = Image.new("RGB", (_WIDE, _HIGH), _PAPER)
    drawing = ImageDraw.Draw(picture)
    frame = _Frame.around(chart)
    _draw_axes(drawing, chart, frame)
    for index, line in enumerate(chart.lines):
        colour = COLOURS[index % len(COLOURS)]
        for stretch in _stretches(line, frame):
            if len(stretch) > 1:
                drawing.line(stretch, fill=colour, width=2, joint="curve")
            else:
                x, y = stretch[0]
                drawing.ellipse((x - 3, y - 3, x + 3, y + 3), fill=colour)
        if index < _NAMED:
            high = _TOP + 18 * index
            drawing.line((_WIDE - _RIGHT + 12, high + 7, _WIDE - _RIGHT + 32, high + 7), fill=colour, width=3)
            drawing.text((_WIDE - _RIGHT + 38, high), line.name[:22], fill=_INK, font=font(12))
    return np.asarray(picture)


@dataclass(frozen=True)
class _Frame:
    """The values at the edges of the plot."""

    left: float
    right: float
    low: float
    high: float

    @classmethod
    def around(cls, chart: Chart) -> _Frame:
        xs = [value for line in chart.lines for value in line.x if math.isfinite(value)] or [0.0, 1.0]
        ys = [value for line in chart.lines for value in line.y if math.isfinite(value)] or [0.0, 1.0]
        least, most = min(0.0, *ys), max(ys)
        low, high = chart.limits or (least, most + _ROOM * (most - least))
        left, right = min(xs), max(xs)
        return cls(left, max(right, left + 1e-9), low, max(high, low + 1e-9))

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.left) / (self.right - self.left)
        up = (y - self.low) / (self.high - self.low)
        return _LEFT + across * (_WIDE - _LEFT - _RIGHT), _HIGH - _BOTTOM - up * (_HIGH - _TOP - _BOTTOM)


def _stretches(line: Line, frame: _Frame) -> list[list[tuple[float, float]]]:
    """The points of a line, broken where a value is missing."""
    found: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(line.x, line.y, strict=True):
        if math.isfinite(x) and math.isfinite(y):
            found[-1].append(frame.place(x, min(max(y, frame.low), frame.high)))
        elif found[-1]:
            found.append([])
    return [stretch for stretch in found if stretch]


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Round values between two others to write at an axis, at most about six of them."""
    least = max((high - low) / _TICKS, 1.0 if whole else 0.0)
    power = 10.0 ** math.floor(math.log10(least))
    # A hair less than is needed will do: 0.2 is not five times 0.04 to the last bit.
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor > least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _draw_axes(drawing: ImageDraw.ImageDraw, chart: Chart, frame: _Frame) -> None:
    for y in ticks(frame.low, frame.high):
        _, down = frame.place(frame.left, y)
        drawing.line((_LEFT, down, _WIDE - _RIGHT, down), fill=_FAINT)
        drawing.text((_LEFT - 8, down), f"{y:g}", fill=_INK, font=font(12), anchor="rm")
    for x in ticks(frame.left, frame.right, whole=chart.whole):
        across, _ = frame.place(x, frame.low)
        drawing.line((across, _TOP, across, _HIGH - _BOTTOM), fill=_FAINT)
        drawing.text((across, _HIGH - _BOTTOM + 6), f"{x:g}", fill=_INK, font=font(12), anchor="ma")
    drawing.rectangle((_LEFT, _TOP, _WIDE - _RIGHT, _HIGH - _BOTTOM), outline=_INK)
    middle = (_LEFT + _WIDE - _RIGHT) / 2
    drawing.text((middle, 14), chart.title, fill=_INK, font=font(18), anchor="ma")
    drawing.text((middle, _HIGH - 26), chart.across, fill=_INK, font=font(14), anchor="ma")
    drawing.text((_LEFT - 60, _TOP - 22), chart.up, fill=_INK, font=font(14))


def precision_recall(scores: Scores) -> Chart:
    """Precision over recall at an overlap of 0.5, for each class and for their mean."""
    there = [one for one in scores.by_class if one.curve]
    recalls = tuple(float(value) for value in np.linspace(0, 1, 101))
    lines = [Line(f"{one.name} {one.map50 or 0:.3f}", recalls, one.curve) for one in there[: _NAMED - 1]]
    if there:
        mean = tuple(float(value) for value in np.mean([one.curve for one in there], 0))
        lines.insert(0, Line(f"all {scores.map50:.3f}", recalls, mean))
    return Chart("precision and recall at IoU 0.5", "recall", "precision", tuple(lines), (0.0, 1.0))


def curves(title: str, epochs: Sequence[float], values: Mapping[str, Sequence[float]]) -> Chart:
    """Values over epochs, such as losses or mAP."""
    lines = tuple(Line(name, tuple(epochs), tuple(column)) for name, column in values.items())
    return Chart(title, "epoch", "", lines, whole=True)
