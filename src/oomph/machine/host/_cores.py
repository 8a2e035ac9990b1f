"""The processor cores that this process may use."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._fact import Fact, NoLimit, Unknown
from ._cgroups import CpuCgroup
from ._source import Source


@dataclass(frozen=True)
class Cores:
    """Processor cores.

    Attributes:
        online: Cores of the machine.
        allowed: Cores that the affinity of this process allows.
        usable: Cores left after CPU quotas; may be a fraction.
    """

    online: Fact[int]
    allowed: Fact[int]
    usable: Fact[float]


def read_cores(source: Source, cgroups: tuple[CpuCgroup, ...]) -> Cores:
    """Count the cores of a Linux machine."""
    online = _count(source, "/sys/devices/system/cpu/online", re.compile(r"(.+)"))
    allowed = _count(source, "/proc/self/status", re.compile(r"Cpus_allowed_list:\s+(\S+)"))
    return Cores(online, allowed, _usable_cores(allowed, cgroups))


def _usable_cores(allowed: Fact[int], cgroups: tuple[CpuCgroup, ...]) -> Fact[float]:
    """Return the smaller of the allowed cores and the tightest quota."""
    tightest: Fact[float] = allowed.map(float)
    for cgroup in cgroups:
        quota = cgroup.quota.known
        if quota is None or isinstance(quota, NoLimit):
            continue
        if tightest.known is None or quota < tightest.known:
            tightest = Fact(quota, cgroup.quota.source)
    return tightest


def _count(source: Source, path: str, pattern: re.Pattern[str]) -> Fact[int]:
    def count(text: str) -> int | Unknown:
        match = pattern.search(text)
        return _list_length(match[1]) if match else Unknown("this kernel doesn't report it")

    return source.fact(path, count)


def _list_length(ranges: str) -> int:
    """Count the numbers in the kernel's list notation: "0-3,8" has five."""
    spans = [part.split("-") for part in ranges.strip().split(",")]
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)
