"""Line charts of a run: series with limits and events, drawn by plotly."""

from __future__ import annotations

import itertools
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...units import GIB, KIB, MIB, format_number, format_rate, format_size
from ..page import PageFigure, PageTable, chart_text
from ._series import MAX_POINTS, Series, thin

# plotly's default colors, which are legible on both backgrounds; one for each kind of series, rank or run.
COLORS = ("#636efa", "#ef553b", "#00a67d", "#ab63fa", "#e8871e", "#0fa3c4", "#d6458f", "#7a9a1a", "#b86fd0", "#a87a50")
_LIMIT_COLOR, _EVENT_COLOR = "#8a8f99", "#d93a3a"
_LIMIT_DASHES = ("dot", "dash", "longdash", "dashdot")
_MAX_PAGE_POINTS = 60_000  # of all series: beyond that a page has more than 8 MB
_MIN_POINTS = 100  # of a series
_FLATTENING = 4  # a limit this many times above all values is hidden at first
_DIGITS = 7  # significant ones of a drawn number
_DAY = 20 * 3600  # seconds; from here on the weekday is shown
_BYTE_UNITS = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "bytes"))
_TIME_UNITS = ((3 * 3600, 3600, "h", 5), (180, 60, "min", 4), (0, 1, "s", 3))


@dataclass(frozen=True)
class Limit:
    """A horizontal line."""

    label: str
    value: float
    group: int | None = None


@dataclass(frozen=True)
class Event:
    """Something that happened at a time: `text` explains it in a sentence."""

    time: float
    label: str
    text: str


@dataclass(frozen=True)
class Chart:
    """A chart before it is drawn.

    Attributes:
        name: its id.
        title: its heading.
        unit: "bytes", "bytes/s", "s", "%" or empty for plain numbers.
        series: the lines.
        limits: horizontal lines.
        by_epoch: True if epochs are on the x axis instead of time.
        stepped: True if a value holds until the next one.
    """

    name: str
    title: str
    unit: str
    series: tuple[Series, ...]
    limits: tuple[Limit, ...] = ()
    by_epoch: bool = False
    stepped: bool = False


@dataclass(frozen=True)
class TimeUnit:
    """The unit of the time axis: its seconds, its name, and the decimals of a drawn time."""

    seconds: float
    name: str
    decimals: int


def time_unit(duration: float) -> TimeUnit:
    """Return the unit for a time axis of that many seconds."""
    return next(TimeUnit(size, name, digits) for least, size, name, digits in _TIME_UNITS if duration >= least)


def thin_charts(charts: Sequence[Chart]) -> tuple[Chart, ...]:
    """Return charts whose series have at most 4,000 points, and fewer if there are many series."""
    count = sum(len(chart.series) for chart in charts)
    limit = min(max(_MAX_PAGE_POINTS // max(count, 1), _MIN_POINTS), MAX_POINTS)
    return tuple(replace(chart, series=tuple(thin(series, limit) for series in chart.series)) for chart in charts)


def format_value(value: float, unit: str) -> str:
    """Return a value with its unit, as texts and tables show it."""
    if unit == "bytes":
        return format_size(value)
    if unit == "bytes/s":
        return format_rate(value)
    if not unit and float(value).is_integer() and abs(value) < 10**_DIGITS:
        return f"{int(value):,}"
    return f"{format_number(value)} {unit}".strip()


def draw(chart: Chart, unit: TimeUnit, events: Sequence[Event] = ()) -> PageFigure:
    """Return the figure of a chart."""
    scale, unit_name = _value_scale(chart)
    traces = [_line(series, chart, scale, unit) for series in chart.series]
    traces += _limit_lines(chart, scale, unit)
    if events and not chart.by_epoch:
        traces += _event_traces(events, unit)
    return PageFigure(
        name=chart.name,
        title=chart.title,
        summary=_summary(chart),
        data=traces,
        layout=_layout(unit_name, "epoch" if chart.by_epoch else f"time since the start ({unit.name})"),
        table=_table(chart),
    )


def _value_scale(chart: Chart) -> tuple[float, str]:
    """Return the unit that a chart's axis is in."""
    if not chart.unit.startswith("bytes"):
        return 1.0, chart.unit
    values = [series.maximum for series in chart.series] + [limit.value for limit in chart.limits]
    size, name = next(((size, name) for size, name in _BYTE_UNITS if max(values) >= size), _BYTE_UNITS[-1])
    return size, chart.unit.replace("bytes", name)


def _line(series: Series, chart: Chart, scale: float, unit: TimeUnit) -> dict[str, Any]:
    times, values = _with_gaps(series)
    in_bytes = chart.unit.startswith("bytes")
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines" if len(values) > 1 and not chart.by_epoch else "lines+markers",
        "name": chart_text(series.label),
        "x": [_position(at, chart, unit) for at in times],
        "y": [None if value is None else _rounded(value / scale) for value in values],
        "line": {"color": COLORS[series.group % len(COLORS)], "dash": series.dash, "width": 1.5}
        | ({"shape": "hv"} if chart.stepped else {}),
        "hovertemplate": _hover_template(chart, scale, unit),
        "connectgaps": False,
    }
    if in_bytes:
        trace["customdata"] = [None if value is None else round(value) for value in values]
    if series.start is not None:
        trace["text"] = list(_clock_times(series, times))
    return trace


def _with_gaps(series: Series) -> tuple[list[float], list[float | None]]:
    """Return the points of a series with a gap where the run was resumed."""
    times, values = list(series.times), [*series.values]
    result: list[float | None] = list(values)
    for at in sorted(series.breaks, reverse=True):
        index = next((index for index, time_ in enumerate(times) if time_ >= at), None)
        if index:
            times.insert(index, at)
            result.insert(index, None)
    return times, result


def _position(at: float, chart: Chart, unit: TimeUnit) -> float:
    return at if chart.by_epoch else round(at / unit.seconds, unit.decimals)


def _rounded(value: float) -> float:
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 10**_DIGITS else rounded


def _clock_times(series: Series, times: Sequence[float]) -> Iterator[str]:
    assert series.start is not None  # noqa: S101  for the type checker
    clock = "%a %H:%M:%S" if times and times[-1] > _DAY else "%H:%M:%S"
    for at in times:
        yield time.strftime(clock, time.localtime(max(series.start + at, 0)))


def _hover_template(chart: Chart, scale: float, unit: TimeUnit) -> str:
    """Return plotly's template of a hover text: name, exact value, time since the start, time of day."""
    if chart.unit.startswith("bytes"):
        _, name = _value_scale(chart)
        value = "%{customdata:,.0f} " + chart.unit
        if scale > 1:
            value = "%{y:.2f} " + name + "<br>(" + value + ")"
    else:
        value = "%{y:.7~g} " + chart.unit
    when = "epoch %{x}" if chart.by_epoch else "%{x:.2f} " + unit.name + "<br>%{text}"
    return f"<b>%{{fullData.name}}</b><br>{value}<br>{when}<extra></extra>"


def _limit_lines(chart: Chart, scale: float, unit: TimeUnit) -> Iterator[dict[str, Any]]:
    ends = [_position(series.times[index], chart, unit) for series in chart.series for index in (0, -1)]
    highest = max(series.maximum for series in chart.series)
    for limit, dash in zip(chart.limits, itertools.cycle(_LIMIT_DASHES)):
        group = limit.group
        color = _LIMIT_COLOR if group is None else COLORS[group % len(COLORS)]
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "lines",
            "name": chart_text(limit.label),
            "x": [min(ends), max(ends)],
            "y": [_rounded(limit.value / scale)] * 2,
            "customdata": [round(limit.value)] * 2,
            "line": {"color": color, "dash": dash, "width": 1.5},
            "hovertemplate": _hover_template(chart, scale, unit).partition("<br>%{x")[0] + "<extra></extra>",
        }
        if limit.value > _FLATTENING * highest:
            trace["visible"] = "legendonly"
        yield trace


def _event_traces(events: Sequence[Event], unit: TimeUnit) -> Iterator[dict[str, Any]]:
    """Yield a vertical line with a marker for each event, on an axis of their own."""
    times = [round(event.time / unit.seconds, unit.decimals) for event in events]
    common = {"type": "scatter", "yaxis": "y2", "legendgroup": "events", "name": "events"}
    yield {
        **common,
        "mode": "lines",
        "x": [at for when in times for at in (when, when, None)],
        "y": [0, 1, None] * len(times),
        "line": {"color": _EVENT_COLOR, "width": 1, "dash": "dot"},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    yield {
        **common,
        "mode": "markers",
        "x": times,
        "y": [1] * len(times),
        "marker": {"color": _EVENT_COLOR, "symbol": "triangle-down", "size": 11},
        "cliponaxis": False,
        "customdata": [_wrapped(event) for event in events],
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _wrapped(event: Event, width: int = 40) -> str:
    lines = textwrap.wrap(event.text, width)
    return "<br>".join([f"<b>{chart_text(event.label)}</b>", *map(chart_text, lines)])


def _layout(value_unit: str, x_title: str) -> dict[str, Any]:
    return {
        "height": 380,
        "hovermode": "closest",
        "hoverdistance": 40,
        "showlegend": True,
        "xaxis": {"title": {"text": x_title}, "automargin": True},
        "yaxis": {"title": {"text": value_unit}, "rangemode": "tozero", "automargin": True},
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
    }


def _summary(chart: Chart) -> str:
    """Return one sentence with the main numbers of a chart."""
    shown = [f"{series.label} at most {format_value(series.maximum, chart.unit)}" for series in chart.series[:3]]
    limits = [f"{limit.label} {format_value(limit.value, chart.unit)}" for limit in chart.limits[:3]]
    more = len(chart.series) - len(shown)
    rest = [f"and {more} more"] if more > 0 else []
    sentence = f"{', '.join(shown + rest)}{'; ' if limits else ''}{', '.join(limits)}."
    return sentence[:1].upper() + sentence[1:]


def _table(chart: Chart) -> PageTable:
    rows = [
        (
            series.label,
            format_value(min(series.values), chart.unit),
            format_value(series.maximum, chart.unit),
            format_value(series.values[-1], chart.unit),
        )
        for series in chart.series
    ]
    rows += [(limit.label, "", format_value(limit.value, chart.unit), "") for limit in chart.limits]
    return PageTable(("", "lowest", "highest or limit", "last"), tuple(rows))
