"""Values derived from the samples of a Record."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ._record import Fields


class HostUse(NamedTuple):
    """Use of host memory in one sample: of the RAM, or of the cgroup if that is fuller."""

    fraction: float
    used: float
    limit: float
    name: str


def host_use(sample: Fields) -> HostUse:
    """Return the use of host memory; all numbers are 0 if the sample doesn't contain it."""
    uses = [HostUse(0.0, 0.0, 0.0, "RAM")]
    total, available = sample.get("ram_total"), sample.get("ram_available")
    if total and available is not None:
        uses.append(HostUse((total - available) / total, total - available, total, "RAM"))
    limit, used = sample.get("cgroup_limit"), sample.get("cgroup_used")
    if limit and used is not None:
        uses.append(HostUse(used / limit, used, limit, "cgroup limit"))
    return max(uses)


def allocator_stats(samples: Sequence[Fields]) -> Iterator[Fields]:
    """Yield the allocator statistics of each sample, of the device with the most reserved memory."""
    for sample in samples:
        if devices := sample.get("torch"):
            yield max(devices, key=lambda device: device["reserved"])


def format_clock(seconds: float) -> str:
    """Format a timestamp as the local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))
