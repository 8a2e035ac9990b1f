"""Resource limits of this process (`ulimit`) and its current use of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...units import KIB
from .._fact import NO_LIMIT, Fact, Limit, Unknown, unknown
from ._kernel_table import KernelTable
from ._source import Source


@dataclass(frozen=True)
class ProcessLimits:
    """The soft limits that training can exceed.

    Attributes:
        address_space: Virtual memory (`ulimit -v`); CUDA reserves far more than it uses.
        data: Private writable memory (`ulimit -d`).
        locked: Memory that can't be swapped (`ulimit -l`).
        open_files: File descriptors (`ulimit -n`); loader workers share tensors through them.
        address_space_used: Virtual memory of this process.
        data_used: Private writable memory of this process.
    """

    address_space: Limit
    data: Limit
    locked: Limit
    open_files: Limit
    address_space_used: Fact[int]
    data_used: Fact[int]


def read_limits(source: Source) -> ProcessLimits:
    """Read the limits of this process from `/proc/self`."""
    limits = source.text("/proc/self/limits")
    status = KernelTable(source, "/proc/self/status", ("VmSize", "VmData"), KIB)
    return ProcessLimits(
        address_space=_limit(limits, "Max address space"),
        data=_limit(limits, "Max data size"),
        locked=_limit(limits, "Max locked memory"),
        open_files=_limit(limits, "Max open files"),
        address_space_used=status.fact("VmSize"),
        data_used=status.fact("VmData"),
    )


def no_limits(reason: str, source: str) -> ProcessLimits:
    """Return the limits of a system without `ulimit`."""
    limit: Limit = unknown(reason, source)
    return ProcessLimits(limit, limit, limit, limit, unknown(reason, source), unknown(reason, source))


def _limit(text: str | Unknown, name: str) -> Limit:
    source = f"/proc/self/limits {name}"
    if isinstance(text, Unknown):
        return Fact(text, source)
    match = re.search(rf"^{name}\s+(\d+|unlimited)\b", text, re.MULTILINE)
    if match is None:
        return unknown("this kernel doesn't report it", source)
    return Fact(NO_LIMIT if match[1] == "unlimited" else int(match[1]), source)
