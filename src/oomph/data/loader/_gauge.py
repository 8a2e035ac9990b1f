"""What a process really holds while it loads."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import psutil


class Gauge:
    """The growth of this process from now on, at its highest; and of the worker processes it is told of."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._base = self._now()
        self._mark = _high_water(self._process)
        self._highest = self._base
        self.workers = 0

    def _now(self) -> int:
        return int(self._process.memory_info().rss)

    def look(self, workers: Iterable[int] = ()) -> None:
        """Note what is held now."""
        self._highest = max(self._highest, self._now())
        mark = _high_water(self._process)
        if mark > self._mark:  # a new record of the whole process: it was set since we began
            self._highest = max(self._highest, mark)
        self.workers = max(self.workers, sum(map(_private, workers)))

    @property
    def grown(self) -> int:
        """Bytes that the process held more than at the start, whoever took them."""
        return self._highest - self._base


def _high_water(process: psutil.Process) -> int:
    """The most that the process ever held; 0 where the system doesn't say."""
    if sys.platform == "win32":
        return int(getattr(process.memory_info(), "peak_wset", 0))
    import resource  # noqa: PLC0415  Windows has none

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _private(number: int) -> int:
    try:
        found: Any = psutil.Process(number).memory_full_info()
    except psutil.Error:
        return 0
    return int(found.uss)
