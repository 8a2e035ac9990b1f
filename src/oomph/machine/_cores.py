"""How many processor cores this process may really use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._cgroup import CpuGroup
from ._fact import Fact, NoLimit, Unknown
from ._source import Source


@dataclass(frozen=True)
class Cores:
    """Cores of the machine, those this process is allowed on, and those it may use after quotas."""

    online: Fact[int]
    allowed: Fact[int]
    usable: Fact[float]


def read_cores(source: Source, groups: tuple[CpuGroup, ...]) -> Cores:
    """Count cores on Linux."""
    online = _count(source, "/sys/devices/system/cpu/online", re.compile(r"(.+)"))
    allowed = _count(source, "/proc/self/status", re.compile(r"Cpus_allowed_list:\s+(\S+)"))
    return Cores(online, allowed, usable_cores(allowed, groups))


def usable_cores(allowed: Fact[int], groups: tuple[CpuGroup, ...]) -> Fact[float]:
    """The smaller of the allowed cores and the tightest quota."""
    tightest: Fact[float] = allowed.map(float)
    for group in groups:
        quota = group.quota.known
        if quota is None or isinstance(quota, NoLimit):
            continue
        if tightest.known is None or quota < tightest.known:
            tightest = Fact(quota, group.quota.source)
    return tightest


def _count(source: Source, path: str, pattern: re.Pattern[str]) -> Fact[int]:
    def count(text: str) -> int | Unknown:
        match = pattern.search(text)
        return _length(match[1]) if match else Unknown("this kernel doesn't say")

    return source.fact(path, count)


def _length(ranges: str) -> int:
    """How many numbers are in the kernel's list notation: "0-3,8" is five."""
    spans = [part.split("-") for part in ranges.strip().split(",")]
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)
