"""Resident memory (RSS) of this process, now and at its peak."""

from __future__ import annotations

import functools
import os
import sys

import psutil

from ..units import KIB

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def rss_bytes() -> int:
    """Return the resident memory of this process."""
    file = _open_statm(os.getpid())
    if file is None:
        return int(psutil.Process().memory_info().rss)
    return int(os.pread(file, 200, 0).split()[1]) * _PAGE_SIZE


@functools.lru_cache(maxsize=1)
def _open_statm(pid: int) -> int | None:
    """Open /proc/PID/statm once per process: the guard reads it several times a step, and a fork needs its own."""
    try:
        return os.open(f"/proc/{pid}/statm", os.O_RDONLY)
    except OSError:
        return None


def peak_rss_bytes() -> int:
    """Return the highest resident memory of this process since it started; 0 where the system doesn't report it."""
    if sys.platform == "win32":
        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123  read often
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * KIB
    except OSError:
        pass
    import resource  # noqa: PLC0415  not on Windows

    # On Linux ru_maxrss includes the peak of the parent process, so it comes second.
    unit = 1 if sys.platform == "darwin" else KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
