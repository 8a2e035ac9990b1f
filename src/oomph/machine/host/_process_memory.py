"""Resident memory of processes: RSS now, its peak, and PSS."""

from __future__ import annotations

import functools
import os
import platform
import sys
from pathlib import Path

import psutil

from ...units import KIB

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_IS_LINUX = platform.system() == "Linux"


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


def process_rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, shared pages included, or None if the process has ended."""
    if not _IS_LINUX:
        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return None
    fields = _read_proc(pid, "statm").split()
    return int(fields[1]) * _PAGE_SIZE if len(fields) > 1 else None


def pss_bytes(pids: tuple[int, ...]) -> int | None:
    """Return the proportional set size of processes (shared pages counted once), or None if it can't be read.

    Reading it takes milliseconds per gigabyte, and the process can't map memory meanwhile: don't call it every second.
    """
    total = 0
    for pid in pids:
        text = _read_proc(pid, "smaps_rollup")
        position = text.find("\nPss:")
        if position < 0:
            return None
        total += int(text[position + 5 :].split(None, 1)[0]) * KIB
    return total


def _read_proc(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def peak_rss_bytes() -> int:
    """Return the highest resident memory of this process since it started; 0 if the system doesn't report it."""
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

    # On Linux ru_maxrss includes the peak of the parent process, so VmHWM comes first.
    unit = 1 if sys.platform == "darwin" else KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
