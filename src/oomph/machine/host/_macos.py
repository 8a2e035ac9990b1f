"""Memory of a macOS host, read with psutil. The tests use recorded values: they don't run on a Mac."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from .._fact import Fact, unknown
from ._memory import Memory


@dataclass(frozen=True)
class MacMemory:
    """The values of psutil that oomph uses, in bytes."""

    total: int
    available: int
    swap_total: int
    swap_used: int


def read_macos_memory() -> Memory:
    """Read the memory of this Mac."""
    return macos_memory(query_psutil())


def query_psutil() -> MacMemory:
    """Query psutil for RAM and swap."""
    ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    return MacMemory(ram.total, ram.available, swap.total, swap.used)


def macos_memory(values: MacMemory) -> Memory:
    """Convert psutil's values to facts. macOS grows its swap files as needed and has no commit limit."""
    ram, swap = "psutil.virtual_memory()", "psutil.swap_memory()"
    no_rate = "macOS reports paging only since the start, compressed memory included"
    no_commit = "macOS has no commit limit"
    return Memory(
        ram_total=Fact(values.total, ram),
        ram_available=Fact(values.available, ram),
        swap_total=Fact(values.swap_total, swap),
        swap_used=Fact(values.swap_used, swap),
        swap_in_rate=unknown(no_rate, swap),
        swap_out_rate=unknown(no_rate, swap),
        major_faults_rate=unknown(no_rate, swap),
        commit_limit=unknown(no_commit, swap),
        commit_charge=unknown(no_commit, swap),
        commit_enforced=unknown(no_commit, swap),
        overcommit=unknown("macOS has no overcommit mode", swap),
    )
