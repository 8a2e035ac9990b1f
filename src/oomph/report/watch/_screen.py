"""The screen of `oomph watch` as text: a function of what was read, of the selection and of the terminal's size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from ...monitor import Reading, RunProgress
from .._text import printable
from ._details import process_details
from ._history import History
from ._lines import clock
from ._resources import MemoryRow, memory_rows, process_key, tree_key
from ._tables import history_seconds, memory_table, process_table

_MIN_FOOTER_HEIGHT = 6
_FIRST_ROWS, _FIRST_PROCESSES, _MORE_PROCESSES, _DETAILS = 4, 3, 6, 4


@dataclass(frozen=True)
class Page:
    """What the screen shows.

    Attributes:
        reading: The last reading.
        history: The values until then.
        selected: The selected process.
        progress: The progress of the selected process, if it writes a Record.
        interval: Seconds between samples.
        notice: A message in the first line.
        can_go_back: True if there is a page to go back to.
        page_file: True if swap is called page file on this system.
    """

    reading: Reading
    history: History
    selected: int | None = None
    progress: RunProgress | None = None
    interval: float = 1.0
    notice: str = ""
    can_go_back: bool = False
    page_file: bool = False


def new_history(interval: float) -> History:
    """Return an empty history for the samples of a screen."""
    return History(history_seconds(interval))


def add_reading(history: History, reading: Reading) -> None:
    """Add the values of a reading to the history: kinds of memory, and the RAM of each process."""
    values = {row.key: row.used for row in memory_rows(reading.sample, root=reading.root)}
    key = tree_key if reading.root is None else process_key
    history.add(reading.time, {**{key(use.pid): float(use.rss) for use in reading.processes}, **values})


def draw_screen(page: Page, width: int, height: int) -> Text:
    """Draw the screen; what doesn't fit is dropped, the least important first."""
    rows = list(memory_rows(page.reading.sample, page_file=page.page_file, root=page.reading.root))
    details = _details(page)
    footer = height >= _MIN_FOOTER_HEIGHT
    shares = share_height(height - 1 - footer, len(rows), len(page.reading.processes), len(details))
    lines = [_title(page, width)]
    lines += _memory_lines(page, rows[: shares.rows], width, shares.headings)
    lines += [Text()] * shares.gaps
    lines += _process_lines(page, shares, width)
    lines += [Text()] * shares.gaps
    lines += [
        _crop(Text(line, "dim" if number > 1 else ""), width) for number, line in enumerate(details[: shares.details])
    ]
    if footer:
        lines += [Text()] * (height - 1 - len(lines))
        lines.append(_footer(page, width))
    return Text("\n").join(lines[:height])


@dataclass
class HeightShares:
    """Lines of each part of the screen; `processes` includes their heading if `headings` is 1."""

    rows: int = 0
    processes: int = 0
    details: int = 0
    headings: int = 0
    gaps: int = 0


def share_height(height: int, rows: int, processes: int, details: int) -> HeightShares:
    """Share the lines between the parts, in order of importance."""
    shares, left = HeightShares(), max(height, 0)
    first_details = min(details, 2)
    list_lines = max(processes, 1)  # an empty list has a line that says so
    for name, wanted, cost in (
        ("rows", min(rows, _FIRST_ROWS), 1),
        ("processes", min(list_lines, _FIRST_PROCESSES), 1),
        ("details", min(details, 1), 1),
        ("rows", rows, 1),
        ("headings", 1, 2),
        ("details", first_details, 1),
        ("processes", min(list_lines, _MORE_PROCESSES), 1),
        ("details", min(details, _DETAILS), 1),
        ("gaps", 1, 2),
        ("processes", list_lines, 1),
    ):
        extra = min(wanted - getattr(shares, name), left // cost)
        if extra > 0:
            setattr(shares, name, getattr(shares, name) + extra)
            left -= extra * cost
    return shares


def visible_range(count: int, selected: int, lines: int) -> range:
    """Return the part of a list that is shown in a number of lines, around the selected entry."""
    start = max(min(selected - lines // 2, count - lines), 0)
    return range(start, min(start + lines, count))


def _title(page: Page, width: int) -> Text:
    reading = page.reading
    if reading.root is None:
        name = "This machine"
    else:
        program = next((use.name for use in reading.processes if use.pid == reading.root), "")
        name = f"Process {reading.root}" + (f" ({program})" if program else "")
    notice = f"  {page.notice}" if page.notice else ""
    title = Text.assemble((f"{printable(name)}, {clock(reading.time)}", "bold"), (printable(notice), "yellow"))
    return _crop(title, width)


def _footer(page: Page, width: int) -> Text:
    keys = ["q quit", "↑↓ select", "Enter open"]
    if page.can_go_back:
        keys.insert(1, "Esc back")
    return _crop(Text("  ".join([*keys, "(the run continues)"]), "dim"), width)


def _memory_lines(page: Page, rows: Sequence[MemoryRow], width: int, headings: int) -> list[Text]:
    heading, lines = memory_table(rows, page.history, page.interval, width)
    return [heading, *lines] if headings else lines


def _process_lines(page: Page, shares: HeightShares, width: int) -> list[Text]:
    processes = page.reading.processes
    if not processes:
        return [Text("No process looks like training or uses a GPU.", "dim")][: shares.processes]
    pids = [use.pid for use in processes]
    position = pids.index(page.selected) if page.selected in pids else 0
    shown = [processes[index] for index in visible_range(len(processes), position, shares.processes)]
    trends = {use.pid: _trend(page, use.pid) for use in shown}
    heading, lines = process_table(shown, page.reading.infos, trends, page.selected, width)
    return [heading, *lines] if shares.headings else lines


def _details(page: Page) -> list[str]:
    selected = next((use for use in page.reading.processes if use.pid == page.selected), None)
    if selected is None:
        return []
    return list(process_details(selected, page.reading.infos, page.progress, _trend(page, selected.pid)))


def _trend(page: Page, pid: int) -> str:
    key = tree_key(pid) if page.reading.root is None else process_key(pid)
    trend = page.history.trend(key)
    return "" if trend is None else trend.rate


def _crop(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line
