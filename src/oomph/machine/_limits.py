"""Resource limits of this process (`ulimit`) and what it uses of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._fact import NO_LIMIT, Fact, Limit, Unknown, unknown
from ._source import Source


@dataclass(frozen=True)
class Limits:
    """The soft limits that training runs into.

    Attributes:
        address_space: of virtual memory (`ulimit -v`); CUDA reserves far more than it uses.
        data: of private writable memory (`ulimit -d`).
        locked: of memory that can't be swapped (`ulimit -l`).
        open_files: of file descriptors (`ulimit -n`); loader workers share tensors through them.
        address_space_used: virtual memory of this process.
        data_used: private writable memory of this process.
    """

    address_space: Limit
    data: Limit
    locked: Limit
    open_files: Limit
    address_space_used: Fact[int]
    data_used: Fact[int]


def read_limits(source: Source) -> Limits:
    """Read the limits of this process from `/proc/self`."""
    limits, status = source.text("/proc/self/limits"), source.text("/proc/self/status")
    return Limits(
        address_space=_limit(limits, "Max address space"),
        data=_limit(limits, "Max data size"),
        locked=_limit(limits, "Max locked memory"),
        open_files=_limit(limits, "Max open files"),
        address_space_used=_used(status, "VmSize"),
        data_used=_used(status, "VmData"),
    )


def no_limits(why: str, source: str) -> Limits:
    """The limits of a system that has none of this kind."""
    nothing: Limit = unknown(why, source)
    return Limits(nothing, nothing, nothing, nothing, unknown(why, source), unknown(why, source))


def _limit(text: str | Unknown, name: str) -> Limit:
    source = f"/proc/self/limits {name}"
    if isinstance(text, Unknown):
        return Fact(text, source)
    match = re.search(rf"^{name}\s+(\d+|unlimited)\b", text, re.MULTILINE)
    if match is None:
        return unknown("this kernel doesn't say", source)
    return Fact(NO_LIMIT if match[1] == "unlimited" else int(match[1]), source)


def _used(text: str | Unknown, name: str) -> Fact[int]:
    source = f"/proc/self/status {name}"
    if isinstance(text, Unknown):
        return Fact(text, source)
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return Fact(int(match[1]) * 1024 if match else Unknown("this kernel doesn't say"), source)
