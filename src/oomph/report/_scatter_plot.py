"""A plot of points with characters, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ..sweeps import Point
from ..units import format_number, format_size

_WIDTH, _HEIGHT = 60, 12
_POINT, _FRONT = "o", "*"


def scatter_plot(points: Sequence[Point], metric: str, width: int = _WIDTH, height: int = _HEIGHT) -> Text:
    """Draw a metric against memory, in `width` columns and `height` lines without the axes."""
    costs, values = [point.cost for point in points], [point.metric for point in points]
    canvas = [[" "] * width for _ in range(height)]
    # Points of the front are drawn last, over the others.
    for point in sorted(points, key=lambda point: point.on_front):
        column = _position(point.cost, costs, width)
        line = height - 1 - _position(point.metric, values, height)
        canvas[line][column] = _FRONT if point.on_front else _POINT
    top, bottom = format_number(max(values)), format_number(min(values))
    margin = max(len(top), len(bottom))
    labels = [top, *[""] * (height - 2), bottom]
    lines = [f"{label:>{margin}} |{''.join(row).rstrip()}" for label, row in zip(labels, canvas, strict=True)]
    left, right = format_size(min(costs)), format_size(max(costs))
    axis = f"{left}{right:>{max(width - len(left), len(right) + 1)}}"
    indent = " " * (margin + 1)
    title = f"{metric} against memory; {_FRONT} is on the front"
    return Text("\n".join([title, *lines, f"{indent}+{'-' * width}", f"{indent} {axis}"]), no_wrap=True)


def _position(value: float, values: Sequence[float], cells: int) -> int:
    """Return the cell of a value on an axis from the smallest to the largest one."""
    low, high = min(values), max(values)
    return round((value - low) / (high - low) * (cells - 1)) if high > low else (cells - 1) // 2
