"""Kills by the kernel because memory ran out."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

_RECENT_SECONDS = 5.0


@dataclass(frozen=True)
class KernelKills:
    """The kills that may explain the end of a command.

    Attributes:
        machine: Kills of any processes on this machine just before its end.
        cgroup: Kills in its own cgroup.
    """

    machine: int = 0
    cgroup: int = 0


class KillCounter:
    """Counts kills of the last seconds: the kernel counts those of all users and containers since it was started."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()
        self.read()

    def read(self) -> None:
        """Read the kernel's count; called at least every few seconds."""
        now = time.monotonic()
        self._counts.append((now, _count()))
        while len(self._counts) > 1 and self._counts[1][0] <= now - _RECENT_SECONDS:
            self._counts.popleft()

    @property
    def recent(self) -> int:
        """The number of kills in the last seconds."""
        self.read()
        return self._counts[-1][1] - self._counts[0][1]


def _count() -> int:
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
