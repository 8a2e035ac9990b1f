"""Host facts on Windows: psutil for RAM and disks, GetPerformanceInfo for the commit limit.

Not run on a Windows machine by our tests: they read recorded values through the same functions.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import psutil

from ._fact import Fact, unknown
from ._memory import Memory


@dataclass(frozen=True)
class PerformanceInfo:
    """The fields of Windows' PERFORMANCE_INFORMATION that we use, in bytes."""

    commit_total: int
    commit_limit: int
    physical_total: int
    physical_available: int


class _Structure(ctypes.Structure):
    _fields_ = (
        ("cb", ctypes.c_uint32),
        *(
            (name, ctypes.c_size_t)
            for name in (
                "CommitTotal",
                "CommitLimit",
                "CommitPeak",
                "PhysicalTotal",
                "PhysicalAvailable",
                "SystemCache",
                "KernelTotal",
                "KernelPaged",
                "KernelNonpaged",
                "PageSize",
            )
        ),
        ("HandleCount", ctypes.c_uint32),
        ("ProcessCount", ctypes.c_uint32),
        ("ThreadCount", ctypes.c_uint32),
    )


def ask_windows() -> PerformanceInfo:
    """Call GetPerformanceInfo."""
    library: Any = getattr(ctypes, "WinDLL")("psapi")  # noqa: B009  other systems' ctypes don't have it
    raw = _Structure()
    raw.cb = ctypes.sizeof(raw)
    if not library.GetPerformanceInfo(ctypes.byref(raw), raw.cb):
        raise OSError("GetPerformanceInfo failed")
    return from_structure(raw)


def from_structure(raw: Any) -> PerformanceInfo:
    """Windows counts in pages; we count in bytes."""
    page = int(raw.PageSize)
    return PerformanceInfo(
        commit_total=raw.CommitTotal * page,
        commit_limit=raw.CommitLimit * page,
        physical_total=raw.PhysicalTotal * page,
        physical_available=raw.PhysicalAvailable * page,
    )


def read_windows_memory(info: PerformanceInfo, page_file_used: int) -> Memory:
    """Make memory facts of Windows' answers: the page file is what the commit limit has beyond RAM."""
    source = "GetPerformanceInfo"
    no_rate = "Windows counts paging for the whole system only in its performance counters"
    return Memory(
        ram_total=Fact(info.physical_total, f"{source} PhysicalTotal"),
        ram_available=Fact(info.physical_available, f"{source} PhysicalAvailable"),
        swap_total=Fact(max(info.commit_limit - info.physical_total, 0), f"{source} CommitLimit - PhysicalTotal"),
        swap_used=Fact(page_file_used, "psutil.swap_memory()"),
        swap_in_rate=unknown(no_rate, source),
        swap_out_rate=unknown(no_rate, source),
        major_faults_rate=unknown(no_rate, source),
        commit_limit=Fact(info.commit_limit, f"{source} CommitLimit"),
        commit_charge=Fact(info.commit_total, f"{source} CommitTotal"),
        commit_enforced=Fact(True, "Windows never promises more than the commit limit"),  # noqa: FBT003  a fact
        overcommit=unknown("Windows has no such mode", source),
    )


def page_file_used() -> int:
    """Bytes of the page file in use."""
    return int(psutil.swap_memory().used)
