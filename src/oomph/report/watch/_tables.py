"""The two tables of the screen: kinds of memory with their history, and processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from rich.text import Text

from ...monitor import ProcessInfo, ProcessUse
from ...units import format_size, format_time
from .._text import printable
from ._columns import Column, draw_columns, text_column
from ._history import History
from ._resources import MemoryRow

_RED_FRACTION, _YELLOW_FRACTION = 0.92, 0.8
_BAR_WIDTH, _PERCENT_WIDTH = 10, 5
_BLOCKS = " ▁▂▃▄▅▆▇█"
_HISTORY_SECONDS = 120.0
_MIN_HISTORY_WIDTH, MAX_HISTORY_WIDTH = 12, 40
_MIN_NOTE_WIDTH, _MAX_NOTE_WIDTH = 12, 80
_MIN_COMMAND_WIDTH, _MAX_COMMAND_WIDTH = 16, 400
_NAME_WIDTH, _USER_WIDTH = 18, 12


def history_seconds(interval: float) -> float:
    """Return the time that the widest history shows at an interval between samples."""
    return max(_HISTORY_SECONDS, interval * MAX_HISTORY_WIDTH)


def memory_table(rows: Sequence[MemoryRow], history: History, interval: float, width: int) -> tuple[Text, list[Text]]:
    """Return the heading and one line per kind of memory."""
    trends = {row.key: history.trend(row.key, row.limit) for row in rows}

    def rate(row: MemoryRow) -> str:
        trend = trends[row.key]
        return "" if trend is None else trend.rate

    def forecast(row: MemoryRow) -> str:
        trend = trends[row.key]
        return "" if trend is None or trend.seconds_left is None else format_time(trend.seconds_left)

    def sparkline(row: MemoryRow, cells: int) -> Text:
        values = history.cells(row.key, cells, max(interval, _HISTORY_SECONDS / cells))
        return Text(draw_sparkline(values, row.limit), "cyan")

    note_width = min(max((len(row.note) for row in rows), default=0), _MAX_NOTE_WIDTH)
    is_fixed = interval <= _HISTORY_SECONDS / MAX_HISTORY_WIDTH  # else a wider terminal shows more time
    title = f"last {format_time(_HISTORY_SECONDS)}" if is_fixed else "history"
    columns = [
        text_column("", 9, rows, lambda row: printable(row.name), "bold"),
        text_column("used", 8, rows, lambda row: format_size(row.used), right=True),
        text_column("of", 7, rows, lambda row: "" if row.limit is None else format_size(row.limit), right=True),
        Column("", 2, _bar, _BAR_WIDTH, _BAR_WIDTH),
        Column("", 6, lambda row, _: _percent(row), _PERCENT_WIDTH, _PERCENT_WIDTH, right=True),
        Column(title, 3, sparkline, _MIN_HISTORY_WIDTH, MAX_HISTORY_WIDTH),
        text_column("trend", 4, rows, rate),
        text_column("full in", 5, rows, forecast, "yellow"),
        Column("", 1, lambda row, _: Text(printable(row.note), "dim"), min(_MIN_NOTE_WIDTH, note_width), note_width),
    ]
    return draw_columns(columns, rows, width)


def draw_sparkline(values: Sequence[float | None], limit: float | None) -> str:
    """Return one character per value: its height is the share of the limit, or of the largest value without a limit."""
    top = limit or max((value for value in values if value is not None), default=0)
    return "".join(" " if value is None else _block(value / top if top else 0.0) for value in values)


def _block(fraction: float) -> str:
    highest = len(_BLOCKS) - 1
    return _BLOCKS[min(max(round(fraction * highest), 1), highest)]


def _style(fraction: float) -> str:
    return "red" if fraction >= _RED_FRACTION else "yellow" if fraction >= _YELLOW_FRACTION else "green"


def _bar(row: MemoryRow, width: int) -> Text:
    if not row.limit:
        return Text()
    fraction = row.used / row.limit
    filled = min(max(round(fraction * width), 0), width)
    return Text.assemble(("█" * filled, _style(fraction)), ("░" * (width - filled), "dim"))


def _percent(row: MemoryRow) -> Text:
    return Text(f"{row.used / row.limit:.0%}", _style(row.used / row.limit)) if row.limit else Text()


def process_table(
    processes: Sequence[ProcessUse],
    infos: Mapping[int, ProcessInfo],
    trends: Mapping[int, str],
    selected: int | None,
    width: int,
) -> tuple[Text, list[Text]]:
    """Return the heading and one line per process; `trends` are those of their RAM, by pid."""

    def info(use: ProcessUse) -> ProcessInfo:
        return infos.get(use.pid, ProcessInfo())

    def pid(use: ProcessUse) -> str:
        return f"{'>' if use.pid == selected else ' '}{use.pid}"

    gpus = {index for use in processes for index in use.gpu}
    has_children = any(use.children for use in processes)
    columns = [
        text_column("pid", 9, processes, pid, right=True),
        text_column("GPU", 8 * bool(gpus), processes, format_gpu_bytes, right=True),
        text_column("on", 3 * bool(gpus), processes, lambda use: ",".join(map(str, use.gpu))),
        text_column("RAM", 7, processes, lambda use: format_size(use.rss) if use.members else "", right=True),
        text_column("name", 6, processes, lambda use: _shorten(process_name(use), _NAME_WIDTH)),
        text_column("RAM trend", 4, processes, lambda use: trends.get(use.pid, "")),
        text_column("children", 2 * has_children, processes, lambda use: str(use.children or ""), right=True),
        text_column("user", 1, processes, lambda use: _shorten(printable(info(use).user), _USER_WIDTH)),
        Column("command", 5, lambda use, _: Text(_short_command(info(use))), _MIN_COMMAND_WIDTH, _MAX_COMMAND_WIDTH),
    ]
    heading, lines = draw_columns([column for column in columns if column.importance], processes, width)
    for use, line in zip(processes, lines, strict=True):
        if use.pid == selected:
            line.stylize("reverse")
    return heading, lines


def process_name(use: ProcessUse) -> str:
    """Return the name of a process."""
    return printable(use.name) if use.members else "outside container"


def format_gpu_bytes(use: ProcessUse) -> str:
    """Return the GPU memory of a process; a question mark if the driver doesn't report it."""
    if not use.gpu:
        return ""
    return format_size(use.gpu_bytes) if use.gpu_bytes else "?"


def _short_command(info: ProcessInfo) -> str:
    """Return the command line without the folder of its program."""
    return printable(" ".join((PurePath(info.command[0]).name, *info.command[1:]))) if info.command else ""


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
