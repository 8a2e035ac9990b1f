"""What a chart shows."""

from __future__ import annotations

from dataclasses import dataclass


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
