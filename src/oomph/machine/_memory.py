"""RAM, swap or page file, and commit: what the host has and how hard it is working for it."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

from ._fact import Fact, Unknown, unknown
from ._source import Source

_SAMPLE_SECONDS = 0.2  # long enough to see paging, short enough that nobody waits for it


@dataclass(frozen=True)
class Memory:
    """The memory of a host.

    Attributes:
        ram_total: physical memory the system has.
        ram_available: what can be had now without swapping.
        swap_total: swap, or the page file on Windows.
        swap_used: how much of it is in use.
        swap_in_rate: bytes per second read back from swap just now.
        swap_out_rate: bytes per second written to swap just now.
        major_faults_rate: page faults per second that had to read a disk.
        commit_limit: how much memory the system will promise, RAM and swap together.
        commit_charge: how much it has promised already.
        commit_enforced: whether a promise beyond the limit is refused (always on Windows; Linux in mode 2).
        overcommit: Linux's overcommit mode: 0 guesses, 1 always promises, 2 never promises more than the limit.
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
    """Read a Linux host's memory from `/proc`."""
    info = _table(source, "/proc/meminfo", re.compile(r"(?P<key>\S+):\s+(?P<value>\d+) kB"), scale=1024)
    overcommit = _overcommit(source)
    total, free = info("SwapTotal"), info("SwapFree")
    used = total.known - free.known if total.known is not None and free.known is not None else None
    rates = _rates(source)
    return Memory(
        ram_total=info("MemTotal"),
        ram_available=_available(info),
        swap_total=total,
        swap_used=Fact(Unknown("swap could not be read") if used is None else used, free.source),
        swap_in_rate=rates["pswpin"],
        swap_out_rate=rates["pswpout"],
        major_faults_rate=rates["pgmajfault"],
        commit_limit=info("CommitLimit"),
        commit_charge=info("Committed_AS"),
        commit_enforced=overcommit.map(lambda mode: mode == 2),  # noqa: PLR2004  the kernel's number
        overcommit=overcommit,
    )


def _available(info: _Table) -> Fact[int]:
    """Kernels before 3.14, and some containers' file systems, leave MemAvailable out."""
    told, free = info("MemAvailable"), info("MemFree")
    return free if told.known is None and free.known is not None else told


def _overcommit(source: Source) -> Fact[int]:
    return source.fact("/proc/sys/vm/overcommit_memory", int)


class _Table:
    """Numbers by name out of one of the kernel's text files."""

    def __init__(self, path: str, text: str | Unknown, line: re.Pattern[str], scale: int) -> None:
        self._path = path
        self._missing = text if isinstance(text, Unknown) else None
        found = () if isinstance(text, Unknown) else line.finditer(text)
        self._values = {match["key"]: int(match["value"]) * scale for match in found}

    def __call__(self, key: str) -> Fact[int]:
        source = f"{self._path} {key}"
        if self._missing is not None:
            return Fact(self._missing, source)
        return Fact(self._values.get(key, Unknown("this kernel doesn't say")), source)


def _table(source: Source, path: str, line: re.Pattern[str], scale: int = 1) -> _Table:
    return _Table(path, source.text(path), line, scale)


def _rates(source: Source) -> dict[str, Fact[float]]:
    """Sample the paging counters twice."""
    line = re.compile(r"(?P<key>\S+) (?P<value>\d+)")
    page = {"pswpin": _page_size(), "pswpout": _page_size(), "pgmajfault": 1}
    before, began = _table(source, "/proc/vmstat", line), time.monotonic()
    after = _table(source.wait(_SAMPLE_SECONDS), "/proc/vmstat", line)
    seconds = time.monotonic() - began if source.live else _SAMPLE_SECONDS
    return {key: _rate(before(key), after(key), seconds, scale) for key, scale in page.items()}


def _rate(before: Fact[int], after: Fact[int], seconds: float, scale: int) -> Fact[float]:
    if before.known is None or after.known is None:
        return unknown("the counter could not be read", before.source)
    return Fact((after.known - before.known) * scale / seconds, f"{before.source}, twice")


def _page_size() -> int:
    return os.sysconf("SC_PAGE_SIZE")
