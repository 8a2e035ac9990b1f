"""Reports as HTML for notebooks: the text of the terminal, with its colors."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterable
from typing import Any, cast

from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.text import Text

from .._emit import Report
from ._values import render_explanation, render_plan, render_prediction, render_record, render_step_report

_WIDTH = 110  # columns; a longer line can be scrolled
_MAX_LINES = 200
_PAGE_STYLE = (
    "white-space:pre;overflow-x:auto;line-height:1.3;margin:0;background:none;color:inherit; "
    "font-family:Menlo,Consolas,DejaVu Sans Mono,monospace"
)
# Mixed with the text color of the page, so that they are readable on light and on dark ones.
_COLORS = {
    "red": "color-mix(in srgb,red 60%,currentcolor)",
    "green": "color-mix(in srgb,green 55%,currentcolor)",
    "yellow": "color-mix(in srgb,#b08000 65%,currentcolor)",
    "cyan": "color-mix(in srgb,#0090a8 65%,currentcolor)",
}
# By name, because importing the classes would import torch.
_RENDERERS: dict[str, Callable[[Any], RenderableType]] = {
    "Explanation": render_explanation,
    "Plan": render_plan,
    "Prediction": render_prediction,
    "Record": render_record,
    "StepReport": render_step_report,
}


def to_html(value: object) -> str:
    """Return a report, Prediction, Plan, StepReport, Explanation or Record as HTML without scripts.

    Raises:
        TypeError: it is something else.
    """
    for cls in type(value).__mro__:
        if cls.__name__ in _RENDERERS:
            return _export(_RENDERERS[cls.__name__](value))
    if not hasattr(value, "render"):
        raise TypeError(f"a {type(value).__name__} has no HTML form")
    return _export(cast("Report", value).render(plain=False))


def _export(renderable: RenderableType) -> str:
    """Return a `<pre>` of at most 200 lines. Names in square brackets are text, not markup of rich."""
    console = Console(file=io.StringIO(), width=_WIDTH, force_jupyter=False, highlight=False, markup=False, emoji=False)
    lines = console.render_lines(renderable, pad=False)
    if len(lines) > _MAX_LINES:
        rest = f"… and {len(lines) - _MAX_LINES} more lines"
        lines = [*lines[:_MAX_LINES], *console.render_lines(Text(rest, "dim"), pad=False)]
    return f'<pre style="{_PAGE_STYLE}">' + "\n".join(map(_line, lines)) + "</pre>"


def _line(segments: Iterable[Segment]) -> str:
    return "".join(map(_span, Segment.simplify(segments))).rstrip()


def _span(segment: Segment) -> str:
    text, style = html.escape(segment.text), segment.style
    if not style or not segment.text.strip():
        return text
    rules = [
        *(["font-weight:bold"] if style.bold else []),
        *(["opacity:0.65"] if style.dim else []),
        *([f"color:{_COLORS[style.color.name]}"] if style.color is not None and style.color.name in _COLORS else []),
    ]
    return f'<span style="{";".join(rules)}">{text}</span>' if rules else text
