"""Samples of a process tree and its machine: GPUs, torch's allocator, RAM, swap, shared memory, child processes."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import psutil

from ..machine import GpuMemoryReader, GpuReading, HostMemoryReader, HostReading, pss_bytes
from ._cost_limit import CostLimit
from ._process_tree import ProcessMemory, ProcessTree
from ._process_use import ProcessInfoCache, ProcessUse, gpu_bytes_by_pid, sum_gpu_bytes

# Reading PSS takes 25 ms per GiB, and the process can't map memory meanwhile. It is read at most at this interval, and
# at most for this fraction of the time.
_MIN_PSS_INTERVAL_SECONDS, _MAX_PSS_FRACTION = 15.0, 0.005


class HostRates:
    """The host's memory, with the swap rates between two readings.

    Args:
        pid: The process whose cgroups are read.
    """

    def __init__(self, pid: int | str = "self") -> None:
        self._reader = HostMemoryReader(pid)
        self._previous: tuple[float, HostReading] | None = None

    def read(self) -> dict[str, Any]:
        """Return the current fields of a sample; a value that can't be read is None."""
        now, reading = time.monotonic(), self._reader.read()
        fields = dataclasses.asdict(reading)
        if reading.stalled_seconds is not None:
            fields["stalled_seconds"] = round(reading.stalled_seconds, 3)
        del fields["swapped_in"], fields["swapped_out"]
        if self._previous is not None and now > self._previous[0]:
            seconds, previous = now - self._previous[0], self._previous[1]
            fields["swap_in_rate"] = _rate(previous.swapped_in, reading.swapped_in, seconds)
            fields["swap_out_rate"] = _rate(previous.swapped_out, reading.swapped_out, seconds)
        self._previous = now, reading
        return fields


class Probe:
    """Takes samples of a process tree.

    Args:
        pid: The root process; this process if None.
        device: Index of the only GPU to read; all GPUs if None.

    Attributes:
        tree: The process and its descendants.

    Raises:
        UsageError: The process doesn't exist.
    """

    def __init__(self, pid: int | None = None, device: int | None = None) -> None:
        self.tree = ProcessTree(os.getpid() if pid is None else pid)
        self._is_this_process = self.tree.pid == os.getpid()
        self._device = device
        self._host, self._gpus = HostRates(self.tree.pid), GpuMemoryReader()
        self._pss_limit = CostLimit(_MIN_PSS_INTERVAL_SECONDS, _MAX_PSS_FRACTION)
        self._members: tuple[ProcessMemory, ...] = ()
        self._readings: tuple[GpuReading, ...] = ()

    def read(self) -> dict[str, Any]:
        """Return a sample; values that can't be read are left out. `docs/record.md` lists the fields."""
        self._members = self.tree.read()
        fields: dict[str, Any] = {**self._host.read(), **self._process_fields(self._members)}
        pids = {process.pid for process in self._members}
        self._readings = tuple(gpu for gpu in self._gpus.read() if self._device in {None, gpu.index})
        if self._readings:
            fields["gpus"] = [_gpu_fields(gpu, pids) for gpu in self._readings]
        if self._is_this_process and (allocators := list(allocator_fields())):
            fields["torch"] = allocators
        return {name: value for name, value in fields.items() if value is not None}

    def list_processes(self, infos: ProcessInfoCache) -> tuple[ProcessUse, ...]:
        """Return the processes of the last sample, each without its descendants, the root first."""
        gpu_bytes = gpu_bytes_by_pid(self._readings)
        return tuple(
            ProcessUse(member.pid, infos[member.pid].name, (member,), sum_gpu_bytes((member.pid,), gpu_bytes))
            for member in self._members
            if member.rss
        )

    def close(self) -> None:
        """Release the driver."""
        self._gpus.close()

    def __enter__(self) -> Probe:  # noqa: PYI034  Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _process_fields(self, processes: tuple[ProcessMemory, ...]) -> dict[str, Any]:
        if not processes:
            return {}
        return {
            "rss": sum(process.rss for process in processes),
            "main_rss": processes[0].rss,
            "pss": self._read_pss(processes),
            "children": len(processes) - 1,
        }

    def _read_pss(self, processes: tuple[ProcessMemory, ...]) -> int | None:
        if not self._pss_limit.is_due:
            return None
        with self._pss_limit.measure():
            return pss_bytes(tuple(process.pid for process in processes))


def gpu_summary(gpu: GpuReading) -> dict[str, Any]:
    """Return the fields of a GPU without its processes."""
    fields = {
        "index": gpu.index,
        "name": gpu.name,
        "total": gpu.total,
        "free": gpu.free,
        "utilization": gpu.utilization,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _gpu_fields(gpu: GpuReading, tree_pids: set[int]) -> dict[str, Any]:
    fields = gpu_summary(gpu)
    if gpu.processes is None:
        return fields
    sizes = {pid: size or 0 for pid, size in gpu.processes}
    fields["tree_used"] = sum(size for pid, size in sizes.items() if pid in tree_pids)
    # In a container the driver lists the pids of the host. If none of them exists here, all may be of this tree.
    if fields["tree_used"] or any(psutil.pid_exists(pid) for pid in sizes):
        others = {pid: size for pid, size in sizes.items() if pid not in tree_pids}
        fields["others_used"] = sum(others.values())
        if others:
            fields["other_pid"] = max(others, key=lambda pid: others[pid])
    return fields


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    return None if before is None or after is None else round((after - before) / seconds)


def allocator_fields() -> Iterator[dict[str, int]]:
    """Yield the statistics of torch's allocator if CUDA is initialized; reading them doesn't wait for the GPU."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return
    for device in range(cuda.device_count()):
        stats = cuda.memory_stats(device)
        if stats.get("reserved_bytes.all.peak", 0):
            yield {
                "device": device,
                "allocated": stats["allocated_bytes.all.current"],
                "peak": stats["allocated_bytes.all.peak"],
                "reserved": stats["reserved_bytes.all.current"],
                "alloc_retries": stats["num_alloc_retries"],
                "ooms": stats["num_ooms"],
            }
