"""Values of a chart: lines and markers."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One line of a chart; values that aren't finite leave a gap. Without a name it isn't in the legend."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Marker:
    """A circle at a point of a chart.

    Attributes:
        x, y: the point; a marker at a value that isn't finite isn't drawn.
        label: a short text beside it.
        filled: True for a filled circle in the color of the first line, False for a hollow gray one.
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
    """A chart of lines, markers or both.

    With markers, the axes end shortly before and after the data. Without, the y axis includes 0.

    Attributes:
        title, x_label, y_label: texts.
        lines: the lines to draw.
        y_limits: lowest and highest y; from the data if None.
        integer_x: True if x has integer values only, such as epochs.
        markers: the markers to draw over the lines.
        filled_meaning, hollow_meaning: what filled and hollow markers mean, shown below the title.
        all_labels: True to draw the labels of hollow markers, too, where they overlap something.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    y_limits: tuple[float, float] | None = None
    integer_x: bool = False
    markers: tuple[Marker, ...] = ()
    filled_meaning: str = ""
    hollow_meaning: str = ""
    all_labels: bool = False
