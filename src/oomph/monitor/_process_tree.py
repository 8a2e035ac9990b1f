"""A process and its descendants, with the RAM of each."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..errors import UsageError
from ..machine import process_rss_bytes

_IS_LINUX = platform.system() == "Linux"
_MAX_PROCESSES = 10_000


@dataclass(frozen=True)
class ProcessMemory:
    """The RSS of a process in bytes, shared pages included."""

    pid: int
    rss: int


class ProcessTree:
    """A process and its descendants.

    Args:
        pid: The process at the root of the tree.
        without: Processes that don't count, with their own descendants.

    Raises:
        UsageError: The process doesn't exist.
    """

    def __init__(self, pid: int, without: Collection[int] = ()) -> None:
        self._without = without
        try:
            self._root = psutil.Process(pid)
            self.name = self._root.name()
        except (psutil.NoSuchProcess, OverflowError, ValueError):
            raise UsageError(
                f"there is no process {pid}", "run `oomph watch` without a PID to list processes"
            ) from None
        except psutil.AccessDenied:
            self.name = "?"
        self.pid = pid

    @property
    def is_alive(self) -> bool:
        """True while the root process runs; a zombie doesn't count."""
        try:
            return self._root.is_running() and self._root.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def read(self) -> tuple[ProcessMemory, ...]:
        """Return the current processes of the tree, the root first."""
        sizes = ((pid, process_rss_bytes(pid)) for pid in self._pids())
        return tuple(ProcessMemory(pid, rss) for pid, rss in sizes if rss is not None)

    def _pids(self) -> Iterator[int]:
        if not _IS_LINUX:
            yield self.pid
            try:
                yield from self._children(self._root)
            except psutil.Error:
                return
            return
        queue, visited = [self.pid], 0
        while queue and visited < _MAX_PROCESSES:
            pid, visited = queue.pop(0), visited + 1
            yield pid
            queue.extend(child for child in _child_pids(pid) if child not in self._without)

    def _children(self, process: psutil.Process) -> Iterator[int]:
        if not self._without:
            yield from (child.pid for child in process.children(recursive=True))
            return
        for child in process.children():
            if child.pid not in self._without:
                yield child.pid
                yield from self._children(child)


def _child_pids(pid: int) -> Iterator[int]:
    """Read the kernel's list of each thread's children, which is cheaper than iterating over all processes."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  called every second, and names are enough
    except OSError:
        return
    for thread in threads:
        try:
            children = Path(f"/proc/{pid}/task/{thread}/children").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        yield from map(int, children.split())
