"""Memory of a Windows host: psutil for the page file, GetPerformanceInfo for RAM and commit.

The tests use recorded values: they don't run on Windows.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import psutil

from .._fact import Fact, unknown
from ._memory import Memory


@dataclass(frozen=True)
class PerformanceInfo:
    """The fields of Windows' PERFORMANCE_INFORMATION that oomph uses, in bytes."""

    commit_total: int
    commit_limit: int
    physical_total: int
    physical_available: int


class PerformanceInformation(ctypes.Structure):
    """PERFORMANCE_INFORMATION as Windows lays it out; sizes are in pages."""

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


def read_windows_memory() -> Memory:
    """Read the memory of this Windows machine."""
    return windows_memory(_query_performance_info(), page_file_used())


def _query_performance_info() -> PerformanceInfo:
    library: Any = getattr(ctypes, "WinDLL")("psapi")  # noqa: B009  ctypes has no WinDLL on other systems
    raw = PerformanceInformation()
    raw.cb = ctypes.sizeof(raw)
    if not library.GetPerformanceInfo(ctypes.byref(raw), raw.cb):
        raise OSError("GetPerformanceInfo failed")
    return in_bytes(raw)


def in_bytes(raw: Any) -> PerformanceInfo:
    """Convert Windows' page counts to bytes."""
    page = int(raw.PageSize)
    return PerformanceInfo(
        commit_total=raw.CommitTotal * page,
        commit_limit=raw.CommitLimit * page,
        physical_total=raw.PhysicalTotal * page,
        physical_available=raw.PhysicalAvailable * page,
    )


def windows_memory(info: PerformanceInfo, page_file_used: int) -> Memory:
    """Convert Windows' values to facts. The page file is the part of the commit limit beyond RAM."""
    source = "GetPerformanceInfo"
    no_rate = "Windows reports paging of the whole system only in its performance counters"
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
        commit_enforced=Fact(True, "Windows never commits more than the limit"),  # noqa: FBT003  a fact
        overcommit=unknown("Windows has no overcommit mode", source),
    )


def page_file_used() -> int:
    """Return the bytes of the page file in use."""
    return int(psutil.swap_memory().used)
