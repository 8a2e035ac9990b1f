"""Figures of matplotlib, without pyplot: no window, no global state, any thread."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._library import load_matplotlib
from ._style import PAPER
from ._text import prepare_texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 100
_PADDING = 0.1  # inches around axes
_MAX_REASON = 120


def new_figure(width: int, height: int) -> Figure:
    """Return an empty figure of that many pixels, which arranges its axes itself."""
    load_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415

    layout = ConstrainedLayoutEngine(w_pad=_PADDING, h_pad=_PADDING)
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, layout=layout, facecolor=PAPER)
    FigureCanvasAgg(figure)  # becomes the figure's canvas
    return figure


def figure_png(figure: Figure) -> bytes:
    """Draw a figure as PNG."""
    prepare_texts(figure)
    buffer = io.BytesIO()
    canvas: Any = (
        figure.canvas
    )  # this method has no types; `savefig` would apply the user's settings of size and margins
    canvas.print_png(buffer, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


def try_draw(name: str, draw: Callable[[], bytes], on_failure: Callable[[str], object]) -> bytes | None:
    """Call a function that draws a plot; if it fails, call `on_failure` with a sentence and return None."""
    try:
        return draw()
    except Exception as error:  # noqa: BLE001  no plot is worth the run that it shows
        reason = " ".join(str(error).split()) or type(error).__name__
        on_failure(f"{name} could not be drawn: {reason[:_MAX_REASON]}.")
        return None
