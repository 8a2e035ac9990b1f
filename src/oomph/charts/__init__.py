"""Charts as PNG, drawn by matplotlib, which is imported only when something is drawn. No torch, no NumPy."""

from ._chart import Chart, Line, Marker
from ._figure import figure_png, new_figure, try_draw
from ._scatter import draw_charts
from ._style import COLORS, Font, font, hex_color
from ._text import drawable_texts

__all__ = [
    "COLORS",
    "Chart",
    "Font",
    "Line",
    "Marker",
    "draw_charts",
    "drawable_texts",
    "figure_png",
    "font",
    "hex_color",
    "new_figure",
    "try_draw",
]
