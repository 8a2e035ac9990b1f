"""Self-contained HTML pages: charts by plotly, text by templates that escape everything. No torch."""

from ._page import PageFigure, PageTable, chart_text, render_page, script_json

__all__ = ["PageFigure", "PageTable", "chart_text", "render_page", "script_json"]
