"""Samples of the whole machine, with the processes that look like training."""

from __future__ import annotations

import os
from typing import Any

import psutil

from ..errors import UsageError
from ..machine import GpuMemoryReader
from ._probe import HostRates, gpu_summary
from ._process_tree import ProcessTree

_MAX_LISTED = 6
_TRAINING_PROGRAMS = (
    "python",
    "pt_main_thread",
    "pt_data_worker",
    "torchrun",
    "accelerate",
    "deepspeed",
    "jupyter",
    "ray",
)


class MachineProbe:
    """Takes samples of the whole machine."""

    def __init__(self) -> None:
        self._host, self._gpus = HostRates(), GpuMemoryReader()

    def read(self) -> dict[str, Any]:
        """Return a sample, with the largest process trees that look like training in `processes`."""
        fields = {name: value for name, value in self._host.read().items() if value is not None}
        gpus = self._gpus.read()
        gpu_bytes: dict[int, int] = {}
        for gpu in gpus:
            for pid, size in gpu.processes or ():
                gpu_bytes[pid] = gpu_bytes.get(pid, 0) + (size or 0)
        if gpus:
            fields["gpus"] = [gpu_summary(gpu) for gpu in gpus]
        return {**fields, "processes": _largest_trees(gpu_bytes)}

    def close(self) -> None:
        """Release the driver."""
        self._gpus.close()


def _largest_trees(gpu_bytes: dict[int, int]) -> list[dict[str, Any]]:
    """Return the largest trees; a child belongs to the topmost process that looks like training."""
    names, parents = {}, {}
    for process in psutil.process_iter(["name", "ppid"]):
        names[process.pid] = str(process.info["name"] or "?")
        parents[process.pid] = int(process.info["ppid"] or 0)
    training = {
        pid for pid, name in names.items() if pid in gpu_bytes or name.lower().startswith(_TRAINING_PROGRAMS)
    } - {os.getpid()}
    roots = [pid for pid in training if parents.get(pid) not in training]
    rows = [row for row in (_tree_fields(pid, names[pid], gpu_bytes) for pid in roots) if row is not None]
    return sorted(rows, key=lambda row: (row.get("gpu", 0), row["rss"]), reverse=True)[:_MAX_LISTED]


def _tree_fields(pid: int, name: str, gpu_bytes: dict[int, int]) -> dict[str, Any] | None:
    try:
        processes = ProcessTree(pid).read()
    except UsageError:
        return None  # it has ended meanwhile
    rss = sum(process.rss for process in processes)
    if not rss:
        return None  # a zombie
    fields = {"pid": pid, "name": name, "rss": rss, "children": len(processes) - 1}
    gpu = sum(gpu_bytes.get(process.pid, 0) for process in processes)
    return {**fields, "gpu": gpu} if gpu else fields
