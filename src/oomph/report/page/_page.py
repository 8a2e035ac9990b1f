"""The frame of every page: one file that needs no network, in light and dark.

Texts reach a page only through its template, which escapes them. Scripts carry a random nonce, and the page's
Content-Security-Policy runs no other ones and sends no request.
"""

from __future__ import annotations

import html
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
# plotly's own looks for both color schemes.
_TEMPLATES = {"light": "plotly_white", "dark": "plotly_dark"}


@dataclass(frozen=True)
class PageTable:
    """A table: the names of its columns, and rows of texts."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class PageFigure:
    """A chart.

    Attributes:
        name: its id in the page, such as "gpu-memory".
        title: its heading.
        summary: what it shows, in a sentence with its main numbers; screen readers read it instead of the chart.
        data: the traces, as in `plotly.graph_objects.Figure.to_plotly_json()`.
        layout: the layout, likewise; colors come from the page's scheme.
        table: its main values, for readers who can't see or point.
    """

    name: str
    title: str
    summary: str
    data: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    table: PageTable | None = None

    @property
    def json(self) -> str:
        """The chart as JSON that is safe inside a script element."""
        return script_json({"data": self.data, "layout": self.layout})


def render_page(template: str, *, folder: Path = _FOLDER, scripts: Sequence[str] = (), **content: object) -> str:
    """Return a page.

    Args:
        template: the file name of its template, which extends `page.html`.
        folder: the folder of that template.
        scripts: JavaScript of the page itself; it runs after the charts are drawn.
        content: the template's variables.
    """
    import jinja2  # noqa: PLC0415  pages are written rarely
    from plotly.offline import get_plotlyjs  # noqa: PLC0415

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, _FOLDER]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        nonce=secrets.token_urlsafe(16),
        style=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        plotly_script=get_plotlyjs(),
        page_script=(_FOLDER / "page.js").read_text(encoding="utf-8"),
        chart_templates=script_json(_chart_templates()),
        scripts=tuple(scripts),
        script_json=script_json,
        **content,
    )


def chart_text(text: str) -> str:
    """Escape a text for labels and hover texts of plotly, which reads `<b>` and others as markup."""
    return html.escape(text, quote=False)


def script_json(value: object) -> str:
    """Return JSON that can't end the script element that contains it; NaN and infinity become null."""
    text = json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _chart_templates() -> dict[str, Any]:
    import plotly.io  # noqa: PLC0415

    layout = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 64, "r": 16, "t": 16, "b": 48},
        # At the bottom of the figure: where it has many lines, as on a phone, the plot becomes smaller.
        "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
    }
    templates = {scheme: plotly.io.templates[name].to_plotly_json() for scheme, name in _TEMPLATES.items()}
    for template in templates.values():
        template["layout"] |= layout
        template["layout"]["font"]["size"] = 13
    return templates
