"""Memory of processes as `oomph watch` lists them, with names, users and command lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import psutil

from ..machine import GpuReading
from ._process_tree import ProcessMemory

T = TypeVar("T")


@dataclass(frozen=True)
class ProcessUse:
    """Memory of a process, or of a process with its descendants.

    Attributes:
        pid: The process.
        name: Its program.
        members: The RSS of the process and of each descendant, the process first. Empty if the process can't be seen
            from here: in a container, the driver lists processes of the host.
        gpu: Bytes of GPU memory by the index of the GPU; 0 if the driver doesn't report the size.
    """

    pid: int
    name: str
    members: tuple[ProcessMemory, ...] = ()
    gpu: Mapping[int, int] = field(default_factory=dict)

    @property
    def rss(self) -> int:
        """RSS in bytes, descendants included."""
        return sum(member.rss for member in self.members)

    @property
    def children(self) -> int:
        """Number of descendants."""
        return max(len(self.members) - 1, 0)

    @property
    def gpu_bytes(self) -> int:
        """GPU memory in bytes, of all GPUs."""
        return sum(self.gpu.values())


def gpu_bytes_by_pid(readings: Iterable[GpuReading]) -> dict[int, dict[int, int]]:
    """Return the GPU memory of each process, by pid and index of the GPU."""
    sizes: dict[int, dict[int, int]] = {}
    for gpu in readings:
        for pid, size in gpu.processes or ():
            sizes.setdefault(pid, {})[gpu.index] = size or 0
    return sizes


def sum_gpu_bytes(pids: Iterable[int], sizes: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """Return the GPU memory of several processes together, by index of the GPU."""
    total: dict[int, int] = {}
    for pid in pids:
        for index, size in sizes.get(pid, {}).items():
            total[index] = total.get(index, 0) + size
    return dict(sorted(total.items()))


def largest_first(processes: Iterable[ProcessUse]) -> tuple[ProcessUse, ...]:
    """Sort processes by GPU memory, then by RAM; those on a GPU come first even if the driver reports no sizes."""
    return tuple(sorted(processes, key=lambda use: (bool(use.gpu), use.gpu_bytes, use.rss), reverse=True))


@dataclass(frozen=True)
class ProcessInfo:
    """Properties of a process that don't change; empty where the system doesn't tell them."""

    name: str = "?"
    user: str = ""
    command: tuple[str, ...] = ()
    start_time: float | None = None


class ProcessInfoCache:
    """Reads the properties of each process once."""

    def __init__(self) -> None:
        self._infos: dict[int, ProcessInfo] = {}

    def __getitem__(self, pid: int) -> ProcessInfo:
        if pid not in self._infos:
            self._infos[pid] = read_process_info(pid)
        return self._infos[pid]

    def keep_only(self, pids: Sequence[int]) -> None:
        """Forget the other processes: the system may use their pids again."""
        self._infos = {pid: self._infos[pid] for pid in pids if pid in self._infos}


def read_process_info(pid: int) -> ProcessInfo:
    """Return the properties of a process; a process that doesn't exist has none."""
    try:
        process = psutil.Process(pid)
    except (psutil.Error, OverflowError, ValueError):
        return ProcessInfo()
    with process.oneshot():
        return ProcessInfo(
            name=_read(process.name, "?"),
            user=_read(process.username, ""),
            command=tuple(_read(process.cmdline, [])),
            start_time=process.create_time(),
        )


def _read(read: Callable[[], T], default: T) -> T:
    # A user without a name on this machine is a KeyError.
    with contextlib.suppress(psutil.Error, OSError, KeyError):
        return read()
    return default
