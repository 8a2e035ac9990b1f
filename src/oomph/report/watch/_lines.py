"""One line per sample, for a pipe, a notebook or a simple terminal."""

from __future__ import annotations

import time

from ...units import format_size
from .._text import printable
from ._history import History
from ._resources import MemoryRow, Sample, memory_rows

_MAX_PROCESSES = 3


class WatchLines:
    """Formats samples as lines, with trends.

    Args:
        page_file: True if swap is called page file on this system.
    """

    def __init__(self, *, page_file: bool = False) -> None:
        self._page_file = page_file
        self._history = History()

    def add(self, timestamp: float, sample: Sample) -> str:
        """Add a sample and return its line."""
        rows = list(memory_rows(sample, page_file=self._page_file))
        self._history.add(timestamp, {row.key: row.used for row in rows})
        parts = [clock(timestamp)]
        for row in rows:
            limit = "" if row.limit is None else f" of {format_size(row.limit)}"
            notes = ", ".join(filter(None, (self._trend(row), row.note)))
            parts.append(f"{row.name} {format_size(row.used)}{limit}" + (f" ({notes})" if notes else ""))
        for process in sample.get("processes", ())[:_MAX_PROCESSES]:
            gpu = f" and {format_size(process['gpu'])} of GPU memory" if "gpu" in process else ""
            parts.append(f"{process['name']} {process['pid']}: {format_size(process['rss'])}{gpu}")
        return printable("  ".join(parts))

    def _trend(self, row: MemoryRow) -> str:
        trend = self._history.trend(row.key, row.limit)
        return "" if trend is None else ", ".join(filter(None, (trend.rate, trend.forecast)))


def clock(timestamp: float) -> str:
    """Return the local time of day as text."""
    return time.strftime("%H:%M:%S", time.localtime(timestamp))
