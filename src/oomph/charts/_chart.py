"""Values of a chart of points: markers, and a line that connects some of them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A line through points."""

    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Marker:
    """A circle at a point of a chart.

    Attributes:
        x, y: the point; a marker at a value that isn't finite isn't drawn.
        label: a short text beside it.
        filled: True for a filled circle in the color of the line, False for a hollow gray one.
        y_error: half the height of its error bar; None for no error bar.
        x_range: the ends of its horizontal error bar; None for no error bar.
    """

    x: float
    y: float
    label: str
    filled: bool
    y_error: float | None = None
    x_range: tuple[float, float] | None = None

    @property
    def is_finite(self) -> bool:
        """True if the marker can be drawn."""
        return all(map(math.isfinite, (self.x, self.y, self.y_error or 0.0, *(self.x_range or ()))))


@dataclass(frozen=True)
class Chart:
    """A chart of markers. Its axes end shortly before and after them.

    Attributes:
        title, x_label, y_label: texts.
        line: the line to draw below the markers.
        markers: the markers.
        filled_meaning, hollow_meaning: what filled and hollow markers mean, shown above the axes.
        y_limits: lowest and highest y; from the data if None.
        all_labels: True to draw the labels of hollow markers, too, where they overlap something.
    """

    title: str
    x_label: str
    y_label: str
    line: Line
    markers: tuple[Marker, ...]
    filled_meaning: str = ""
    hollow_meaning: str = ""
    y_limits: tuple[float, float] | None = None
    all_labels: bool = False
