"""Signs of life of a command: output, CPU time, work on a GPU."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection

import psutil

from ..machine import GpuMemoryReader

_MIN_CPU_FRACTION = 0.02  # of a core; loops that wait for something use less
_MIN_CHECK_SECONDS = 0.5


class Activity:
    """Tells how long a process tree has been idle.

    Args:
        output_bytes: Returns how much the command has written.
    """

    def __init__(self, output_bytes: Callable[[], int]) -> None:
        self._output_bytes = output_bytes
        self._gpus = GpuMemoryReader()
        self._checked_at = self._active_at = time.monotonic()
        self._written, self._cpu_seconds = output_bytes(), 0.0

    def idle_seconds(self, pids: Collection[int]) -> float:
        """Return for how many seconds there was no output, and the processes used no CPU and no GPU."""
        now = time.monotonic()
        passed = now - self._checked_at
        if passed >= _MIN_CHECK_SECONDS:
            written, cpu_seconds = self._output_bytes(), _cpu_seconds(pids)
            was_busy = cpu_seconds - self._cpu_seconds > _MIN_CPU_FRACTION * passed
            if written != self._written or was_busy or self._is_gpu_busy(pids):
                self._active_at = now
            self._checked_at, self._written, self._cpu_seconds = now, written, cpu_seconds
        return now - self._active_at

    def restart(self) -> None:
        """Count from now: the command was suspended, which is not a hang."""
        self._active_at = self._checked_at = time.monotonic()

    def close(self) -> None:
        """Release the driver."""
        self._gpus.close()

    def _is_gpu_busy(self, pids: Collection[int]) -> bool:
        """Return True if a GPU that the processes use is working; in a container, any GPU that is working."""
        for gpu in self._gpus.read():
            users = {pid for pid, _ in gpu.processes or ()}
            if gpu.utilization and (users & set(pids) or not any(psutil.pid_exists(pid) for pid in users)):
                return True
        return False


def _cpu_seconds(pids: Collection[int]) -> float:
    """Return the CPU time of processes; it is less than before if one of them has ended, which is activity, too."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error, OSError):
            times = os.times() if pid == os.getpid() else psutil.Process(pid).cpu_times()
            total += times.user + times.system
    return total
