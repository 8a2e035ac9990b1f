"""Charts, drawn with Pillow alone so that every run has plots. No torch, no NumPy."""

from ._chart import Chart, Line, Marker
from ._draw import draw_chart, draw_charts
from ._style import COLORS, Font, font

__all__ = ["COLORS", "Chart", "Font", "Line", "Marker", "draw_chart", "draw_charts", "font"]
