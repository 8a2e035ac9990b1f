"""Readings of memory that are cheap enough to be taken every second, while something trains.

A reading is numbers and nothing else; what can't be read is None. Facts with their sources are in `Machine`.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from ._cgroup import read_again, read_cgroups
from ._fact import Unknown, limited
from ._source import Source
from ._volume import SHM

_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class HostReading:
    """The memory of the host at one moment.

    Attributes:
        ram_total: bytes of RAM.
        ram_available: what can be had without swapping.
        swap_total: swap, or the page file.
        swap_used: how much of it is in use.
        swapped_in: bytes read back from swap since the system started.
        swapped_out: bytes written to swap since then.
        stalled: seconds since then in which every task that could run stood still for memory.
        pressure: percent of the last ten seconds in which some task did.
        group_limit: what the tightest control group of the process allows.
        group_used: what that group uses, page cache not counted.
        shm_total: the size of /dev/shm.
        shm_used: how much of it is in use.
    """

    ram_total: int | None = None
    ram_available: int | None = None
    swap_total: int | None = None
    swap_used: int | None = None
    swapped_in: int | None = None
    swapped_out: int | None = None
    stalled: float | None = None
    pressure: float | None = None
    group_limit: int | None = None
    group_used: int | None = None
    shm_total: int | None = None
    shm_used: int | None = None


class HostMemoryReader:
    """The host's memory and the control groups of one process, whose places are found once.

    Args:
        process: the process whose groups are read.
        source: a recorded machine instead of this one.
    """

    def __init__(self, process: int | str = "self", source: Source | None = None) -> None:
        self._source = source or Source()
        self._linux = source is not None or platform.system() == "Linux"
        groups = read_cgroups(self._source, process).memory if self._linux else ()
        self._groups = tuple(group for group in groups if limited(group.maximum) is not None)

    def read(self) -> HostReading:
        """Read it now."""
        if not self._linux:
            return _elsewhere()
        files = self._source
        info = _numbers(files, "/proc/meminfo", r"^(\w+):\s+(\d+) kB", 1024)
        moved = _numbers(files, "/proc/vmstat", r"^(pswpin|pswpout) (\d+)", _page())
        swap, free = info.get("SwapTotal"), info.get("SwapFree")
        limit, used = self._group()
        shm = files.volume(SHM)
        pressure = files.text("/proc/pressure/memory")
        return HostReading(
            ram_total=info.get("MemTotal"),
            ram_available=info.get("MemAvailable", info.get("MemFree")),
            swap_total=swap,
            swap_used=None if swap is None or free is None else swap - free,
            swapped_in=moved.get("pswpin"),
            swapped_out=moved.get("pswpout"),
            stalled=_pressure(pressure, r"^full .*total=(\d+)", 1 / _MICROSECONDS),
            pressure=_pressure(pressure, r"^some avg10=([\d.]+)", 1),
            group_limit=limit,
            group_used=used,
            shm_total=None if isinstance(shm, Unknown) else shm[0],
            shm_used=None if isinstance(shm, Unknown) else shm[0] - shm[1],
        )

    def _group(self) -> tuple[int | None, int | None]:
        """Limit and use of the group with the least room."""
        bounds = []
        for group in (read_again(self._source, group) for group in self._groups):
            limit, current = limited(group.maximum), group.current.known
            if limit is not None and current is not None:
                bounds.append((limit, max(current - (group.reclaimable.known or 0), 0)))
        return min(bounds, key=lambda bound: bound[0] - bound[1], default=(None, None))


def _elsewhere() -> HostReading:
    """Through psutil, on macOS and Windows; what they move to the page file they count in other ways."""
    ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    return HostReading(ram.total, ram.available, swap.total, swap.used)


def _numbers(source: Source, path: str, line: str, scale: int) -> dict[str, int]:
    text = source.text(path)
    found = () if isinstance(text, Unknown) else re.finditer(line, text, re.MULTILINE)
    return {match[1]: int(match[2]) * scale for match in found}


def _pressure(text: str | Unknown, pattern: str, scale: float) -> float | None:
    match = None if isinstance(text, Unknown) else re.search(pattern, text, re.MULTILINE)
    return None if match is None else float(match[1]) * scale


def _page() -> int:
    return os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class GpuReading:
    """The memory of one GPU at one moment.

    Attributes:
        index: the driver's number for it.
        name: the product's name.
        total: bytes of memory.
        free: bytes nobody uses.
        busy: percent of the time in which a kernel ran.
        processes: number and bytes of each process on it; None where they can't be seen, as in a container.
    """

    index: int
    name: str
    total: int
    free: int
    busy: int | None
    processes: tuple[tuple[int, int | None], ...] | None


class GpuMemoryReader:
    """The driver, kept open between readings; without a driver or GPU every reading is empty."""

    def __init__(self) -> None:
        import pynvml  # noqa: PLC0415  50 ms that only a caller who wants GPUs should pay

        self._nvml: Any = pynvml
        self._handles: list[tuple[int, str, Any]] = []
        self._open = False
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self._open = True
            self._handles = list(self._find())

    def _find(self) -> Iterator[tuple[int, str, Any]]:
        for index in range(self._nvml.nvmlDeviceGetCount()):
            # A GPU that fell off the bus has no handle; the others are still there.
            with contextlib.suppress(self._nvml.NVMLError):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                name = self._nvml.nvmlDeviceGetName(handle)
                yield index, name.decode(errors="replace") if isinstance(name, bytes) else str(name), handle

    def read(self) -> tuple[GpuReading, ...]:
        """Read every GPU now."""
        found = []
        for index, name, handle in self._handles:
            with contextlib.suppress(self._nvml.NVMLError):
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
                busy, held = self._busy(handle), self._processes(handle)
                found.append(GpuReading(index, name, memory.total, memory.free, busy, held))
        return tuple(found)

    def _busy(self, handle: Any) -> int | None:
        with contextlib.suppress(self._nvml.NVMLError):
            return int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        return None

    def _processes(self, handle: Any) -> tuple[tuple[int, int | None], ...] | None:
        with contextlib.suppress(self._nvml.NVMLError):
            found = {one.pid: one.usedGpuMemory for one in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
            with contextlib.suppress(self._nvml.NVMLError):
                drawing = self._nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
                found = {**{one.pid: one.usedGpuMemory for one in drawing}, **found}
            return tuple(sorted(found.items())) or None
        return None

    def close(self) -> None:
        """Let go of the driver."""
        if self._open:
            self._open, self._handles = False, []
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
