"""The whole machine at a glance, with the processes that look like training."""

from __future__ import annotations

import os
from typing import Any

import psutil

from ..errors import UsageError
from ..machine import GpuMemoryReader
from ._probe import HostMeter
from ._tree import Tree

_SHOWN = 6
_PROGRAMS = ("python", "pt_main_thread", "pt_data_worker", "torchrun", "accelerate", "deepspeed", "jupyter", "ray")


class MachineProbe:
    """Looks at the whole machine again and again."""

    def __init__(self) -> None:
        self._host, self._gpus = HostMeter(), GpuMemoryReader()

    def read(self) -> dict[str, Any]:
        """The machine now, in the fields of a sample, and `processes`: the largest trees that look like training."""
        found = {name: value for name, value in self._host.read().items() if value is not None}
        gpus = self._gpus.read()
        held: dict[int, int] = {}
        for gpu in gpus:
            for pid, size in gpu.processes or ():
                held[pid] = held.get(pid, 0) + (size or 0)
        if gpus:
            found["gpus"] = [_gpu(gpu) for gpu in gpus]
        return {**found, "processes": _largest(held)}

    def close(self) -> None:
        """Let go of the driver."""
        self._gpus.close()


def _gpu(gpu: Any) -> dict[str, Any]:
    shown = {"index": gpu.index, "name": gpu.name, "total": gpu.total, "free": gpu.free, "busy": gpu.busy}
    return {name: value for name, value in shown.items() if value is not None}


def _largest(held: dict[int, int]) -> list[dict[str, Any]]:
    """The trees that hold most, each counted once: a child belongs to the topmost process that looks like training."""
    names, parents = {}, {}
    for process in psutil.process_iter(["name", "ppid"]):
        names[process.pid] = str(process.info["name"] or "?")
        parents[process.pid] = int(process.info["ppid"] or 0)
    likely = {pid for pid, name in names.items() if pid in held or name.lower().startswith(_PROGRAMS)} - {os.getpid()}
    tops = [pid for pid in likely if parents.get(pid) not in likely]
    rows = [row for row in (_row(pid, names[pid], held) for pid in tops) if row is not None]
    return sorted(rows, key=lambda row: (row.get("gpu", 0), row["rss"]), reverse=True)[:_SHOWN]


def _row(pid: int, name: str, held: dict[int, int]) -> dict[str, Any] | None:
    try:
        tree = Tree(pid).read()
    except UsageError:
        return None  # it ended while we looked
    resident = sum(one.resident for one in tree)
    if not resident:
        return None  # it has ended, and nobody has waited for it
    row = {"pid": pid, "name": name, "rss": resident, "children": len(tree) - 1}
    gpu = sum(held.get(one.pid, 0) for one in tree)
    return {**row, "gpu": gpu} if gpu else row
