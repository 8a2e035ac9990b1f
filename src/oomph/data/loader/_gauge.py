"""What a process really holds while it loads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psutil

from ...machine import peak_rss_bytes


class Gauge:
    """The growth of this process from now on, at its highest; and of the worker processes it is told of.

    Args:
        forked: they share pages with this process that only the kernel's slow count tells from their own.
    """

    def __init__(self, *, forked: bool = False) -> None:
        self._private = _unique if forked else _private
        self._process = psutil.Process()
        self._base = self._now()
        self._mark = peak_rss_bytes()
        self._highest = self._base
        self.workers = 0

    def _now(self) -> int:
        return int(self._process.memory_info().rss)

    def look(self, workers: Iterable[int] = ()) -> None:
        """Note what is held now."""
        self._highest = max(self._highest, self._now())
        mark = peak_rss_bytes()
        if mark > self._mark:  # a new record of the whole process: it was set since we began
            self._highest = max(self._highest, mark)
        self.workers = max(self.workers, sum(map(self._private, workers)))

    @property
    def grown(self) -> int:
        """Bytes that the process held more than at the start, whoever took them."""
        return self._highest - self._base


def _private(number: int) -> int:
    """What a process shares with nobody, by the kernel's running count.

    Counting page by page takes a second or two for a crew that maps gigabytes of copies, while batches wait.
    """
    try:
        found: Any = psutil.Process(number).memory_info()
    except psutil.Error:
        return 0
    return int(found.rss - found.shared) if hasattr(found, "shared") else _unique(number)  # Linux alone says it


def _unique(number: int) -> int:
    try:
        found: Any = psutil.Process(number).memory_full_info()
    except psutil.Error:
        return 0
    return int(found.uss)
