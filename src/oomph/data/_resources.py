"""Memory and cores that are available to this process, and the memory that it uses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import psutil

from ..machine import HostMemoryReader, Machine, peak_rss_bytes, read_machine, rss_bytes
from ..units import GIB

_UNKNOWN_MEMORY_BYTES = 4 * GIB  # assumed where nothing can be read


@dataclass(frozen=True)
class HostResources:
    """Resources that one process may use; its share if torchrun started several on this machine.

    Attributes:
        memory: available bytes of host memory.
        limited_by: the limit that determines them: "RAM", "cgroup limit", "commit limit" and so on.
        shm: free bytes in `/dev/shm`; 0 if it does not exist.
        cores: usable cores, with quotas taken into account.
        gpu: True if the machine has a GPU.
    """

    memory: int
    limited_by: str
    shm: int
    cores: int
    gpu: bool


@cache
def _machine() -> tuple[Machine, HostMemoryReader]:
    """Read the facts that don't change once, because asking the GPU driver is slow."""
    return read_machine(), HostMemoryReader()


def read_resources() -> HostResources:
    """Read the resources that are available now."""
    machine, memory_reader = _machine()
    now = memory_reader.read()
    # The tightest bound comes first, so it replaces others of the same name.
    available = {bound.name: bound.available for bound in reversed(machine.budget.bounds)}
    if now.ram_available is not None:
        available["RAM"] = now.ram_available
    if now.cgroup_limit is not None and now.cgroup_used is not None:
        available["cgroup limit"] = max(now.cgroup_limit - now.cgroup_used, 0)
    limit = min(available, key=lambda name: available[name], default="unknown RAM")
    processes = _local_world_size()
    return HostResources(
        memory=available.get(limit, _UNKNOWN_MEMORY_BYTES) // processes,
        limited_by=limit,
        shm=max((now.shm_total or 0) - (now.shm_used or 0), 0) // processes,
        cores=max(int(machine.cores.usable.known or os.cpu_count() or 1) // processes, 1),
        gpu=bool(machine.gpus),
    )


def usable_cores() -> int:
    """Return the number of cores that this process may use, after quotas and the share of other local ranks."""
    return read_resources().cores


def _local_world_size() -> int:
    """Return the number of processes that torchrun started on this machine."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(int(text), 1) if text.isdigit() else 1


class MemoryMeter:
    """Measures the peak growth of this process, and the peak private memory of worker processes.

    Args:
        forked: workers were forked, so that the kernel must tell their private pages from shared ones one by one.
    """

    def __init__(self, *, forked: bool = False) -> None:
        self._worker_bytes = _unique_bytes if forked else _private_bytes
        self._base = self._peak = rss_bytes()
        self._initial_peak = peak_rss_bytes()
        self.workers = 0

    def sample(self, pids: Iterable[int] = ()) -> None:
        """Read the memory that is in use now."""
        self._peak = max(self._peak, rss_bytes())
        peak = peak_rss_bytes()
        if peak > self._initial_peak:  # otherwise the peak is older than this meter
            self._peak = max(self._peak, peak)
        self.workers = max(self.workers, sum(map(self._worker_bytes, pids)))

    @property
    def growth(self) -> int:
        """Peak memory of this process minus its memory at the start."""
        return self._peak - self._base


def _private_bytes(pid: int) -> int:
    """Return the private memory of a process from the kernel's counters.

    Counting its pages instead takes a second or two if workers map a cache of several GiB.
    """
    try:
        info: Any = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0
    return int(info.rss - info.shared) if hasattr(info, "shared") else _unique_bytes(pid)  # only Linux has `shared`


def _unique_bytes(pid: int) -> int:
    try:
        info: Any = psutil.Process(pid).memory_full_info()
    except psutil.Error:
        return 0
    return int(info.uss)
