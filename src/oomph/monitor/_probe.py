"""One look at a process tree and the machine under it: device, allocator, host, swap, shared memory, workers."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import psutil

from ..machine import GpuMemoryReader, GpuReading, HostMemoryReader, HostReading
from ._tree import Held, Tree, proportional

# Shared pages are counted rarely, because it takes 25 ms a GiB, in which the process can't map memory: at most this
# often, and at most for this share of the time.
_PROPORTIONAL_SECONDS, _PROPORTIONAL_SHARE = 15.0, 0.005


class HostMeter:
    """The host's memory, with the rates that come from two readings; a process says whose control group counts."""

    def __init__(self, pid: int | str = "self") -> None:
        self._gauge = HostMemoryReader(pid)
        self._before: tuple[float, HostReading] | None = None

    def read(self) -> dict[str, Any]:
        """Everything now; what can't be read is None."""
        now, reading = time.monotonic(), self._gauge.read()
        found = dataclasses.asdict(reading)
        found["stalled"] = None if reading.stalled is None else round(reading.stalled, 3)
        for name in ("swapped_in", "swapped_out"):
            del found[name]
        if self._before is not None and now > self._before[0]:
            seconds, before = now - self._before[0], self._before[1]
            found["swap_in"] = _rate(before.swapped_in, reading.swapped_in, seconds)
            found["swap_out"] = _rate(before.swapped_out, reading.swapped_out, seconds)
        self._before = now, reading
        return found


class Probe:
    """Looks at a process tree again and again.

    Args:
        pid: the process at the top; this process if None.
        device: only this GPU, by the driver's number; all if None.

    Raises:
        UsageError: there is no such process.
    """

    def __init__(self, pid: int | None = None, device: int | None = None) -> None:
        self.tree = Tree(os.getpid() if pid is None else pid)
        self._own = self.tree.pid == os.getpid()
        self._device = device
        self._host, self._gpus = HostMeter(self.tree.pid), GpuMemoryReader()
        self._count_at = float("-inf")

    def read(self) -> dict[str, Any]:
        """Everything now; what can't be read is left out. `docs/record.md` has the fields."""
        held = self.tree.read()
        found: dict[str, Any] = {**self._host.read(), **self._processes(held)}
        if gpus := [self._gpu(reading, {one.pid for one in held}) for reading in self._wanted()]:
            found["gpus"] = gpus
        if self._own and (allocators := list(_allocators())):
            found["torch"] = allocators
        return {name: value for name, value in found.items() if value is not None}

    def close(self) -> None:
        """Let go of the driver."""
        self._gpus.close()

    def __enter__(self) -> Probe:  # noqa: PYI034  Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _processes(self, held: tuple[Held, ...]) -> dict[str, Any]:
        if not held:
            return {}
        return {
            "rss": sum(one.resident for one in held),
            "own_rss": held[0].resident,
            "pss": self._proportional(held),
            "workers": len(held) - 1,
        }

    def _proportional(self, held: tuple[Held, ...]) -> int | None:
        began = time.monotonic()
        if began < self._count_at:
            return None
        counted = proportional(tuple(one.pid for one in held))
        spent = time.monotonic() - began
        self._count_at = began + max(_PROPORTIONAL_SECONDS, spent / _PROPORTIONAL_SHARE)
        return counted

    def _wanted(self) -> tuple[GpuReading, ...]:
        return tuple(gpu for gpu in self._gpus.read() if self._device in {None, gpu.index})

    def _gpu(self, gpu: GpuReading, own: set[int]) -> dict[str, Any]:
        found: dict[str, Any] = {"index": gpu.index, "name": gpu.name, "total": gpu.total, "free": gpu.free}
        if gpu.busy is not None:
            found["busy"] = gpu.busy
        if gpu.processes is not None:
            held = {pid: size or 0 for pid, size in gpu.processes}
            found["ours"] = sum(size for pid, size in held.items() if pid in own)
            # Inside a container the numbers are the host's, and nobody's here: then all that is held may be ours.
            if found["ours"] or any(psutil.pid_exists(pid) for pid in held):
                others = {pid: size for pid, size in held.items() if pid not in own}
                found["others"] = sum(others.values())
                found |= {"other_pid": max(others, key=lambda pid: others[pid])} if others else {}
        return found


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    return None if before is None or after is None else round((after - before) / seconds)


def _allocators() -> Iterator[dict[str, int]]:
    """What torch's allocator says, if torch is loaded and has started CUDA; asking it makes nobody wait for the GPU."""
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
