"""Readings of a machine with two GPUs and of its processes, without either."""

from __future__ import annotations

from typing import Any

from oomph.monitor import ProcessInfo, ProcessMemory, ProcessUse, Reading
from oomph.units import GIB, MIB

NOW = 1_794_000_000.0


def process(pid: int, rss: int = GIB, children: int = 0, gpu: dict[int, int] | None = None) -> ProcessUse:
    members = (ProcessMemory(pid, rss), *(ProcessMemory(10 * pid + n, 100 * MIB) for n in range(children)))
    return ProcessUse(pid, "python", members, gpu or {})


def gpu_fields(index: int, used: int, **more: Any) -> dict[str, Any]:
    return {"index": index, "name": "NVIDIA T4", "total": 16 * GIB, "free": 16 * GIB - used, **more}


def machine_sample(used: int = 8 * GIB, **more: Any) -> dict[str, Any]:
    return {
        "gpus": [gpu_fields(0, 12 * GIB, utilization=71), gpu_fields(1, GIB, utilization=0)],
        "cgroup_limit": 32 * GIB,
        "cgroup_used": 31 * GIB,
        "ram_total": 64 * GIB,
        "ram_available": 64 * GIB - used,
        "swap_total": 2 * GIB,
        "swap_used": 0,
        "shm_total": 8 * GIB,
        "shm_used": 512 * MIB,
        **more,
    }


def machine_reading(*processes: ProcessUse, time: float = NOW, **sample: Any) -> Reading:
    processes = processes or (process(42, 4 * GIB, 3, {0: 11 * GIB}), process(7))
    return reading(None, *processes, time=time, sample=machine_sample(**sample))


def reading(root: int | None, *processes: ProcessUse, time: float = NOW, sample: dict[str, Any]) -> Reading:
    infos = {
        member.pid: ProcessInfo("python", "ann", ("/opt/bin/python", "train.py", "--batch", "64"), NOW - 60)
        for use in processes
        for member in use.members
    }
    return Reading(time, root, sample, processes, infos)
