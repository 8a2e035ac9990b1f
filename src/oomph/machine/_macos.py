"""Host facts on macOS through psutil.

Not run on a Mac by our tests: they read recorded values through the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from ._fact import Fact, unknown
from ._memory import Memory


@dataclass(frozen=True)
class MacMemory:
    """The numbers of psutil that we use, in bytes."""

    total: int
    available: int
    swap_total: int
    swap_used: int


def ask_macos() -> MacMemory:
    """Ask psutil."""
    ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    return MacMemory(ram.total, ram.available, swap.total, swap.used)


def read_macos_memory(answer: MacMemory) -> Memory:
    """Make memory facts of psutil's answers. macOS grows its swap files as needed and has no commit limit."""
    ram, swap = "psutil.virtual_memory()", "psutil.swap_memory()"
    no_rate = "macOS counts paging since the start only, compressed memory included"
    no_commit = "macOS has no commit limit"
    return Memory(
        ram_total=Fact(answer.total, ram),
        ram_available=Fact(answer.available, ram),
        swap_total=Fact(answer.swap_total, swap),
        swap_used=Fact(answer.swap_used, swap),
        swap_in_rate=unknown(no_rate, swap),
        swap_out_rate=unknown(no_rate, swap),
        major_faults_rate=unknown(no_rate, swap),
        commit_limit=unknown(no_commit, swap),
        commit_charge=unknown(no_commit, swap),
        commit_enforced=unknown(no_commit, swap),
        overcommit=unknown("macOS has no such mode", swap),
    )
