"""Readings of the host's memory that are cheap enough to take every second during training.

A reading contains plain numbers; a value that can't be read is None. `Machine` has the same facts with their sources.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

import psutil

from .._fact import Unknown, limit_bytes
from ._cgroups import read_cgroups, refresh_memory_cgroup
from ._kernel_table import KernelTable
from ._memory import page_size, read_meminfo
from ._pressure import psi_value
from ._source import Source
from ._volume import SHM

_MICROSECONDS = 1_000_000  # per second


@dataclass(frozen=True)
class HostReading:
    """The memory of the host at one moment; sizes are in bytes.

    Attributes:
        ram_total: Physical memory.
        ram_available: Memory that can be allocated without swapping.
        swap_total: Swap, or the page file.
        swap_used: Swap in use.
        swapped_in: Bytes read from swap since the system started.
        swapped_out: Bytes written to swap since the system started.
        stalled_seconds: Seconds since the system started in which all runnable tasks waited for memory.
        pressure: Percentage of the last ten seconds in which some task waited for memory.
        cgroup_limit: Limit of the cgroup with the least memory left.
        cgroup_used: Memory that this cgroup uses, without the page cache.
        shm_total: Size of /dev/shm.
        shm_used: Bytes of /dev/shm in use.
    """

    ram_total: int | None = None
    ram_available: int | None = None
    swap_total: int | None = None
    swap_used: int | None = None
    swapped_in: int | None = None
    swapped_out: int | None = None
    stalled_seconds: float | None = None
    pressure: float | None = None
    cgroup_limit: int | None = None
    cgroup_used: int | None = None
    shm_total: int | None = None
    shm_used: int | None = None


class HostMemoryReader:
    """Reads the host's memory and the cgroups of one process; the cgroup folders are located once.

    Args:
        process: The process whose cgroups are read.
        source: A recorded machine to read instead of this one.
    """

    def __init__(self, process: int | str = "self", source: Source | None = None) -> None:
        self._source = source or Source()
        self._is_linux = source is not None or platform.system() == "Linux"
        cgroups = read_cgroups(self._source, process).memory if self._is_linux else ()
        self._cgroups = tuple(cgroup for cgroup in cgroups if limit_bytes(cgroup.limit) is not None)

    def read(self) -> HostReading:
        """Return the current values."""
        if not self._is_linux:
            return _read_with_psutil()
        source = self._source
        info = read_meminfo(source)
        vmstat = KernelTable(source, "/proc/vmstat", ("pswpin", "pswpout"), page_size())
        swap, free = info.get("SwapTotal"), info.get("SwapFree")
        available = info.get("MemAvailable")
        limit, used = self._tightest_cgroup()
        shm = source.volume(SHM)
        psi = source.text("/proc/pressure/memory")
        stalled = None if isinstance(psi, Unknown) else psi_value(psi, "full", "total")
        return HostReading(
            ram_total=info.get("MemTotal"),
            ram_available=info.get("MemFree") if available is None else available,
            swap_total=swap,
            swap_used=None if swap is None or free is None else swap - free,
            swapped_in=vmstat.get("pswpin"),
            swapped_out=vmstat.get("pswpout"),
            stalled_seconds=None if stalled is None else stalled / _MICROSECONDS,
            pressure=None if isinstance(psi, Unknown) else psi_value(psi, "some", "avg10"),
            cgroup_limit=limit,
            cgroup_used=used,
            shm_total=None if isinstance(shm, Unknown) else shm[0],
            shm_used=None if isinstance(shm, Unknown) else shm[0] - shm[1],
        )

    def _tightest_cgroup(self) -> tuple[int | None, int | None]:
        """Return limit and use of the cgroup with the least memory left."""
        bounds = []
        for cgroup in (refresh_memory_cgroup(self._source, cgroup) for cgroup in self._cgroups):
            limit, used = limit_bytes(cgroup.limit), cgroup.used
            if limit is not None and used is not None:
                bounds.append((limit, used))
        return min(bounds, key=lambda bound: bound[0] - bound[1], default=(None, None))


def _read_with_psutil() -> HostReading:
    """Read macOS or Windows. Their paging counters mean other things than Linux's, so they are left out."""
    ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    return HostReading(ram.total, ram.available, swap.total, swap.used)
