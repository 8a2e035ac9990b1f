"""What a process really holds while it loads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psutil

from ...machine import peak_resident


class Gauge:
    """The growth of this process from now on, at its highest; and of the worker processes it is told of."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._base = self._now()
        self._mark = peak_resident()
        self._highest = self._base
        self.workers = 0

    def _now(self) -> int:
        return int(self._process.memory_info().rss)

    def look(self, workers: Iterable[int] = ()) -> None:
        """Note what is held now."""
        self._highest = max(self._highest, self._now())
        mark = peak_resident()
        if mark > self._mark:  # a new record of the whole process: it was set since we began
            self._highest = max(self._highest, mark)
        self.workers = max(self.workers, sum(map(_private, workers)))

    @property
    def grown(self) -> int:
        """Bytes that the process held more than at the start, whoever took them."""
        return self._highest - self._base


def _private(number: int) -> int:
    try:
        found: Any = psutil.Process(number).memory_full_info()
    except psutil.Error:
        return 0
    return int(found.uss)
