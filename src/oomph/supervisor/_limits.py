"""Limits of a command: its RAM budget, the memory that the machine has left, and the time that it may hang."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping

from ..failures import FailureKind
from ..machine import HostMemoryReader, HostReading
from ..units import GIB, MIB, format_size, format_time
from ._activity import Activity
from ._cgroup import CommandCgroup
from ._command_process import CommandProcess
from ._kernel_kills import KernelKills, KillCounter
from ._processes import CommandTree
from ._request import HostLimits, StopReason

_MIN_INTERVAL, _MAX_INTERVAL = 0.05, 0.5  # seconds between readings, shorter when memory is scarce
_SCARCE_BYTES = 4 * GIB
# What must stay free: this fraction of the machine or container, within these sizes.
_MARGIN_FRACTION, _MIN_MARGIN, _MAX_MARGIN = 0.02, 32 * MIB, 512 * MIB
# A command that uses less than this fraction is not why memory is full, and stopping it wouldn't help.
_MIN_SHARE = 0.1


class LimitWatch:
    """Watches a command in a thread and stops it when it exceeds a limit: SIGTERM, then SIGKILL of its processes.

    Args:
        process: The command.
        tree: The command with all that it starts.
        limits: Its limits.
        cgroup: The cgroup that enforces the budget; without one, RSS is read.
        output_bytes: Returns how much the command has written.

    Attributes:
        reason: Why it was stopped; None if it was not.
    """

    def __init__(
        self,
        process: CommandProcess,
        tree: CommandTree,
        limits: HostLimits,
        cgroup: CommandCgroup | None,
        output_bytes: Callable[[], int],
    ) -> None:
        self.reason: StopReason | None = None
        self._process, self._tree, self._limits, self._cgroup = process, tree, limits, cgroup
        self._host = HostMemoryReader()
        self._activity = None if limits.idle_seconds is None else Activity(output_bytes)
        self._kills = KillCounter()
        self._ended = threading.Event()
        self._available = self._growth = 0
        self._thread = threading.Thread(target=self._run, name="oomph-limits", daemon=True)

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def restart_idle_time(self) -> None:
        """Forget the time in which the command was suspended."""
        if self._activity is not None:
            self._activity.restart()

    @property
    def kernel_kills(self) -> KernelKills:
        """The kernel's kills in the last seconds, and in the command's cgroup."""
        return KernelKills(self._kills.recent, 0 if self._cgroup is None else self._cgroup.kills)

    def close(self) -> None:
        """End the watch after the command's end."""
        self._ended.set()
        self._thread.join()
        if self._activity is not None:
            self._activity.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            reason, interval = self._check()
            if reason is not None and not self._ended.is_set():
                self.reason = reason
                self._stop_command()
                return
            self._ended.wait(interval)

    def _check(self) -> tuple[StopReason | None, float]:
        """Return the limit that is exceeded, and the seconds until the next check."""
        self._kills.read()
        rss = self._read_tree()
        used = sum(rss.values())
        reason, left = self._check_budget(used)
        if reason is None and self._limits.guards_ram:
            reason, free = self._check_host(used)
            left = min(left, free)
        if reason is None and self._activity is not None:
            reason = self._check_idle(rss)
        return reason, _MIN_INTERVAL if left < _SCARCE_BYTES else _MAX_INTERVAL

    def _read_tree(self) -> dict[int, int]:
        rss = self._tree.read()
        rss.pop(self._process.leader or 0, None)
        return rss

    def _check_budget(self, rss: int) -> tuple[StopReason | None, int]:
        budget = self._limits.budget
        if budget is None:
            return None, _SCARCE_BYTES
        used = rss if self._cgroup is None else self._cgroup.used
        if used <= budget:
            return None, budget - used
        text = f"It used {format_size(used)} of RAM, and its budget is {format_size(budget)}."
        return StopReason(FailureKind.HOST_BUDGET, text, {"used": used, "limit": budget}), 0

    def _check_host(self, rss: int) -> tuple[StopReason | None, int]:
        """Check that as much as in the last interval can be allocated again, with a margin."""
        available, total, name = _available(self._host.read())
        self._growth = max(self._available - available, 0) if self._available else 0
        self._available = available
        if available - self._growth > _margin(total) or rss < _MIN_SHARE * total:
            return None, available
        text = (
            f"{format_size(available)} of {format_size(total)} was left ({name}), and the command used "
            f"{format_size(rss)}."
        )
        numbers = {"used": total - available, "limit": total, "tree": rss}
        return StopReason(FailureKind.HOST_FULL, text, numbers), available

    def _check_idle(self, rss: Mapping[int, int]) -> StopReason | None:
        limit = self._limits.idle_seconds
        assert limit is not None  # noqa: S101  there is an activity only with a limit
        assert self._activity is not None  # noqa: S101
        if self._activity.idle_seconds(rss) <= limit:
            return None
        text = f"It wrote no output and used no CPU or GPU for {format_time(limit)}."
        return StopReason(FailureKind.HANG, text, {"seconds": limit})

    def _stop_command(self) -> None:
        """Send SIGTERM; after a grace time, or if memory is about to run out, SIGKILL to all its processes."""
        for number in (signal.SIGTERM, signal.SIGCONT):  # a process that is stopped must continue to end
            self._process.send_to_group(number)
        deadline = time.monotonic() + self._limits.grace_seconds
        while not self._ended.wait(_MIN_INTERVAL) and time.monotonic() < deadline:
            if self._is_critical():
                break
        self._tree.kill(spared=(self._process.leader or 0,))

    def _is_critical(self) -> bool:
        """Return True if waiting longer risks a kill of any process by the kernel."""
        available, total, _ = _available(self._host.read())
        if self._limits.guards_ram and available < _margin(total) / 2:
            return True
        budget = self._limits.budget
        return budget is not None and self._cgroup is None and sum(self._read_tree().values()) > budget * 1.1


def _available(reading: HostReading) -> tuple[int, int, str]:
    """Return what is left, of how much, and of what: the machine with its swap, or the fullest cgroup."""
    bounds = []
    if reading.ram_available is not None and reading.ram_total is not None:
        swap = (reading.swap_total or 0) - (reading.swap_used or 0)
        bounds.append((reading.ram_available + swap, reading.ram_total, "RAM"))
    if reading.cgroup_limit is not None and reading.cgroup_used is not None:
        bounds.append((reading.cgroup_limit - reading.cgroup_used, reading.cgroup_limit, "container or cgroup limit"))
    return min(bounds, default=(1 << 62, 1 << 62, "RAM"))


def _margin(total: int) -> float:
    return min(max(total * _MARGIN_FRACTION, _MIN_MARGIN), _MAX_MARGIN)
