"""The RSS of this process and the memory that is left for it, checked often and cheaply."""

from __future__ import annotations

import time

from ...units import MIB, format_size
from ._memory_reader import HostMemoryReader
from ._process_memory import rss_bytes

_MAX_FILL = 0.95  # fraction of what is left that an extrapolated growth may use
_RSS_SECONDS = 0.002  # between two reads of the RSS
_HOST_SECONDS = 0.5  # between two reads of the machine's free memory
_MIN_FREE_BYTES = 64 * MIB  # that must stay free
_AMPLE_FACTOR = 8  # with this many times the growth available, checks may be rare


class HostMemoryLow(MemoryError):
    """The host is almost out of memory: raised before the kernel kills the process."""


class MemoryWatch:
    """Watches the RSS of this process during a piece of work, because nothing raises when RAM runs out.

    Args:
        budget: bytes that this process may use; by default what the machine and its cgroups have left.

    Attributes:
        peak: the largest RSS seen since the start of the work; None before.
    """

    def __init__(self, budget: int | None = None) -> None:
        self._budget = budget
        self._reader = HostMemoryReader() if budget is None else None
        self._base = self._last_rss = self._largest_step = 0
        self._checked_at, self._is_near_limit = 0.0, True
        self._host_read_at, self._host_read_rss, self._host_available = -_HOST_SECONDS, 0, 0
        self.peak: int | None = None

    def start(self) -> None:
        """Begin a piece of work."""
        self._base = self._last_rss = self.peak = rss_bytes()
        self._checked_at, self._largest_step, self._is_near_limit = 0.0, 0, True

    def stop(self) -> int:
        """End the work; return by how much the RSS grew in it."""
        self._note(rss_bytes())
        return (self.peak or 0) - self._base

    def check(self) -> None:
        """Check that another growth like the largest one between two checks would fit.

        Raises:
            HostMemoryLow: it would not.
        """
        now = time.monotonic()
        if now < self._checked_at + _RSS_SECONDS and not self._is_near_limit:
            return
        self._checked_at = now
        rss = rss_bytes()
        self._note(rss)
        available = self._available(rss)
        self._is_near_limit = not self._is_ample(rss, self._largest_step)
        if available < _MIN_FREE_BYTES + self._largest_step:
            raise HostMemoryLow(f"the host has {format_size(max(available, 0))} left")

    def is_ample(self, growth: int) -> bool:
        """Return True if many times this growth is available."""
        return self._is_ample(rss_bytes(), growth)

    def _is_ample(self, rss: int, growth: int) -> bool:
        return self._available(rss) >= _AMPLE_FACTOR * (growth + _MIN_FREE_BYTES)

    def _note(self, rss: int) -> None:
        self._largest_step = max(self._largest_step, rss - self._last_rss)
        self._last_rss = rss
        self.peak = max(self.peak or 0, rss)

    def fits(self, factor: float) -> bool:
        """Return True if the growth of the last work, multiplied by a factor, fits."""
        if self.peak is None:
            return True
        return factor * (self.peak - self._base) <= _MAX_FILL * self._available(rss_bytes())

    def limit(self) -> int:
        """Return the bytes that this process may use in total."""
        rss = rss_bytes()
        return rss + self._available(rss)

    def _available(self, rss: int) -> int:
        if self._reader is None:
            assert self._budget is not None  # noqa: S101  there is a budget or a reader
            return self._budget - rss
        now, growth = time.monotonic(), rss - self._host_read_rss
        if now < self._host_read_at + _HOST_SECONDS and growth < self._host_available / 4:
            return self._host_available - growth
        self._host_read_at, self._host_read_rss = now, rss
        self._host_available = _available_on_host(self._reader)
        return self._host_available


def _available_on_host(reader: HostMemoryReader) -> int:
    reading = reader.read()
    bounds = [reading.ram_available]
    if reading.cgroup_limit is not None and reading.cgroup_used is not None:
        bounds.append(reading.cgroup_limit - reading.cgroup_used)
    return min((bound for bound in bounds if bound is not None), default=1 << 62)
