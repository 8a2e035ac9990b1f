"""Samples of the whole machine, with the processes that look like training or use a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from ..machine import GpuMemoryReader, process_rss_bytes
from ._cost_limit import CostLimit
from ._probe import HostRates, gpu_summary
from ._process_tree import ProcessMemory
from ._process_use import ProcessUse, gpu_bytes_by_pid, largest_first, sum_gpu_bytes

_MAX_SAMPLED = 6  # processes in a sample, besides those that use a GPU
# A machine may have thousands of processes.
_MIN_SCAN_INTERVAL_SECONDS, _MAX_SCAN_FRACTION = 0.0, 0.005
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
    """Takes samples of the whole machine.

    Attributes:
        processes: The process trees of the last sample that look like training or use a GPU, largest first. A child
            belongs to the topmost process of them.
    """

    def __init__(self) -> None:
        self._host, self._gpus = HostRates(), GpuMemoryReader()
        self._scan_limit = CostLimit(_MIN_SCAN_INTERVAL_SECONDS, _MAX_SCAN_FRACTION)
        self._names: dict[int, str] = {}
        self._parents: dict[int, int] = {}
        self.processes: tuple[ProcessUse, ...] = ()

    def read(self) -> dict[str, Any]:
        """Return a sample, with the largest process trees in `processes`."""
        fields = {name: value for name, value in self._host.read().items() if value is not None}
        gpus = self._gpus.read()
        self.processes = largest_first(self._list_trees(gpu_bytes_by_pid(gpus)))
        if gpus:
            fields["gpus"] = [gpu_summary(gpu) for gpu in gpus]
        visible = [use for use in self.processes if use.members]
        count = max(_MAX_SAMPLED, sum(bool(use.gpu) for use in visible))
        return {**fields, "processes": [_tree_fields(use) for use in visible[:count]]}

    def close(self) -> None:
        """Release the driver."""
        self._gpus.close()

    def _list_trees(self, gpu_bytes: Mapping[int, Mapping[int, int]]) -> Iterator[ProcessUse]:
        if self._scan_limit.is_due:
            with self._scan_limit.measure():
                self._scan()
        training = {
            pid for pid, name in self._names.items() if pid in gpu_bytes or name.lower().startswith(_TRAINING_PROGRAMS)
        } - {os.getpid()}
        children: dict[int, list[int]] = {}
        for pid, parent in self._parents.items():
            children.setdefault(parent, []).append(pid)
        for pid in training:
            if self._parents[pid] not in training and (members := tuple(_read_members(pid, children))):
                gpu = sum_gpu_bytes((member.pid for member in members), gpu_bytes)
                yield ProcessUse(pid, self._names[pid], members, gpu)
        for pid in gpu_bytes.keys() - self._names.keys():
            yield ProcessUse(pid, "?", (), gpu_bytes[pid])

    def _scan(self) -> None:
        self._names, self._parents = {}, {}
        for process in psutil.process_iter(["name", "ppid"]):
            self._names[process.pid] = str(process.info["name"] or "?")
            self._parents[process.pid] = int(process.info["ppid"] or 0)


def _read_members(pid: int, children: Mapping[int, list[int]]) -> Iterator[ProcessMemory]:
    """Yield the RSS of a process and its descendants; nothing if the process has ended or is a zombie."""
    rss = process_rss_bytes(pid)
    if not rss:
        return
    yield ProcessMemory(pid, rss)
    queue, visited = list(children.get(pid, ())), {pid}
    while queue:
        descendant = queue.pop(0)
        if descendant in visited:
            continue  # a pid that was used again may close a circle
        visited.add(descendant)
        queue.extend(children.get(descendant, ()))
        if rss := process_rss_bytes(descendant):
            yield ProcessMemory(descendant, rss)


def _tree_fields(use: ProcessUse) -> dict[str, Any]:
    fields = {"pid": use.pid, "name": use.name, "rss": use.rss, "children": use.children}
    return {**fields, "gpu": use.gpu_bytes} if use.gpu_bytes else fields
