"""RAM, swap or page file, and commit of a host, with the current paging rates."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from ...units import KIB
from .._fact import Fact, Unknown, unknown
from ._kernel_table import KernelTable
from ._source import Source

_SAMPLE_SECONDS = 0.2  # long enough to see paging, short enough for an interactive command
_STRICT_OVERCOMMIT = 2  # the kernel's mode that refuses allocations beyond the commit limit


@dataclass(frozen=True)
class Memory:
    """The memory of a host.

    Attributes:
        ram_total: Physical memory.
        ram_available: Memory that can be allocated now without swapping.
        swap_total: Swap, or the page file on Windows.
        swap_used: Swap in use.
        swap_in_rate: Bytes per second currently read from swap.
        swap_out_rate: Bytes per second currently written to swap.
        major_faults_rate: Page faults per second that read from a disk.
        commit_limit: Memory that the system commits at most, RAM and swap together.
        commit_charge: Memory that it has already committed.
        commit_enforced: True if allocations beyond the limit fail (always on Windows; on Linux in overcommit mode 2).
        overcommit: Linux's overcommit mode: 0 heuristic, 1 always, 2 never.
    """

    ram_total: Fact[int]
    ram_available: Fact[int]
    swap_total: Fact[int]
    swap_used: Fact[int]
    swap_in_rate: Fact[float]
    swap_out_rate: Fact[float]
    major_faults_rate: Fact[float]
    commit_limit: Fact[int]
    commit_charge: Fact[int]
    commit_enforced: Fact[bool]
    overcommit: Fact[int]


def read_memory(source: Source) -> Memory:
    """Read the memory of a Linux host from `/proc`."""
    info = read_meminfo(source)
    overcommit = source.fact("/proc/sys/vm/overcommit_memory", int)
    total, free = info.fact("SwapTotal"), info.fact("SwapFree")
    used = total.known - free.known if total.known is not None and free.known is not None else None
    rates = _paging_rates(source)
    return Memory(
        ram_total=info.fact("MemTotal"),
        ram_available=_available(info),
        swap_total=total,
        swap_used=Fact(Unknown("swap could not be read") if used is None else used, free.source),
        swap_in_rate=rates["pswpin"],
        swap_out_rate=rates["pswpout"],
        major_faults_rate=rates["pgmajfault"],
        commit_limit=info.fact("CommitLimit"),
        commit_charge=info.fact("Committed_AS"),
        commit_enforced=overcommit.map(lambda mode: mode == _STRICT_OVERCOMMIT),
        overcommit=overcommit,
    )


def read_meminfo(source: Source) -> KernelTable:
    """Read the entries of /proc/meminfo that oomph uses, in bytes."""
    keys = ("MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree", "CommitLimit", "Committed_AS")
    return KernelTable(source, "/proc/meminfo", keys, KIB)


def _available(info: KernelTable) -> Fact[int]:
    """Fall back to MemFree: kernels before 3.14 and some container file systems lack MemAvailable."""
    available, free = info.fact("MemAvailable"), info.fact("MemFree")
    return free if available.known is None and free.known is not None else available


def _paging_rates(source: Source) -> dict[str, Fact[float]]:
    """Sample the paging counters twice."""
    scales = {"pswpin": page_size(), "pswpout": page_size(), "pgmajfault": 1}
    before, start = KernelTable(source, "/proc/vmstat", tuple(scales)), time.monotonic()
    after = KernelTable(source.after(_SAMPLE_SECONDS), "/proc/vmstat", tuple(scales))
    seconds = time.monotonic() - start if source.live else _SAMPLE_SECONDS
    return {key: _rate(before.fact(key), after.fact(key), seconds, scale) for key, scale in scales.items()}


def _rate(before: Fact[int], after: Fact[int], seconds: float, scale: int) -> Fact[float]:
    if before.known is None or after.known is None:
        return unknown("the counter could not be read", before.source)
    return Fact((after.known - before.known) * scale / seconds, f"{before.source}, twice")


def page_size() -> int:
    """Return the size of a memory page, in bytes."""
    return os.sysconf("SC_PAGE_SIZE")
