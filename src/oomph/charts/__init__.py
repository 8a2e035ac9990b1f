"""Charts, drawn with Pillow alone so that every run has plots. No torch, no NumPy."""

from ._chart import Chart, Line
from ._draw import draw_chart
from ._style import COLORS, Font, font

__all__ = ["COLORS", "Chart", "Font", "Line", "draw_chart", "font"]
