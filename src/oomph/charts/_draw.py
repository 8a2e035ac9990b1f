"""Drawing of charts."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw

from ._axes import AxisLimits, PlotArea, draw_axes
from ._chart import Chart, Line
from ._markers import draw_marker_meanings, draw_markers
from ._style import COLORS, INK, PAPER, font

_WIDTH, _HEIGHT = 800, 500
_LEFT, _TOP, _BOTTOM = 80, 50, 60  # margins
_RIGHT, _RIGHT_WITH_LEGEND = 30, 180
_TOP_WITH_MEANINGS = 90
_MAX_LEGEND_LINES = 20


def draw_chart(chart: Chart) -> Image.Image:
    """Draw a chart as an image of 800 x 500 pixels."""
    canvas = Image.new("RGB", (_WIDTH, _HEIGHT), PAPER)
    drawing = ImageDraw.Draw(canvas)
    area = plot_area(chart)
    draw_axes(drawing, chart, area)
    for index, line in enumerate(chart.lines):
        _draw_line(drawing, line, area, COLORS[index % len(COLORS)])
    _draw_legend(drawing, chart, area)
    draw_markers(drawing, chart, area)
    draw_marker_meanings(drawing, chart, area)
    return canvas


def draw_charts(charts: Sequence[Chart]) -> Image.Image:
    """Draw charts side by side as one image."""
    canvas = Image.new("RGB", (_WIDTH * len(charts), _HEIGHT), PAPER)
    for index, chart in enumerate(charts):
        canvas.paste(draw_chart(chart), (_WIDTH * index, 0))
    return canvas


def plot_area(chart: Chart) -> PlotArea:
    """Return where the data of a chart is drawn."""
    top = _TOP_WITH_MEANINGS if chart.filled_meaning or chart.hollow_meaning else _TOP
    right = _RIGHT_WITH_LEGEND if any(line.name for line in chart.lines) else _RIGHT
    return PlotArea((_LEFT, top, _WIDTH - right, _HEIGHT - _BOTTOM), AxisLimits.around(chart))


def _draw_line(drawing: ImageDraw.ImageDraw, line: Line, area: PlotArea, color: tuple[int, int, int]) -> None:
    for segment in area.segments(line):
        if len(segment) > 1:
            drawing.line(segment, fill=color, width=2, joint="curve")
        else:
            x, y = segment[0]
            drawing.ellipse((x - 3, y - 3, x + 3, y + 3), fill=color)


def _draw_legend(drawing: ImageDraw.ImageDraw, chart: Chart, area: PlotArea) -> None:
    _, top, right, _ = area.frame
    for index, line in enumerate(chart.lines[:_MAX_LEGEND_LINES]):
        if line.name:
            y = top + 18 * index
            drawing.line((right + 12, y + 7, right + 32, y + 7), fill=COLORS[index % len(COLORS)], width=3)
            drawing.text((right + 38, y), line.name[:22], fill=INK, font=font(12))
