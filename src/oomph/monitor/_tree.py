"""A process and everything it started: how much memory they hold."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..errors import UsageError

_LINUX = platform.system() == "Linux"
_DEEPEST = 10_000  # processes of one tree; more is a mistake somewhere


@dataclass(frozen=True)
class Held:
    """One process and the bytes of RAM it holds, pages that it shares with others included."""

    pid: int
    resident: int


class Tree:
    """A process and its children, theirs and so on.

    Args:
        pid: the process at the top.

    Raises:
        UsageError: there is no such process.
    """

    def __init__(self, pid: int) -> None:
        try:
            self._top = psutil.Process(pid)
            self.name = self._top.name()
        except (psutil.NoSuchProcess, OverflowError, ValueError):
            raise UsageError(f"there is no process {pid}", "`oomph watch` without a number shows what runs") from None
        except psutil.AccessDenied:
            self.name = "?"
        self.pid = pid

    @property
    def alive(self) -> bool:
        """Whether the process at the top still runs; one that only waits to be collected doesn't."""
        try:
            return self._top.is_running() and self._top.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def read(self) -> tuple[Held, ...]:
        """Every process of the tree now, the top first."""
        found = []
        for pid in self._pids():
            resident = _resident(pid)
            if resident is not None:
                found.append(Held(pid, resident))
        return tuple(found)

    def _pids(self) -> Iterator[int]:
        if not _LINUX:
            yield self.pid
            try:
                yield from (child.pid for child in self._top.children(recursive=True))
            except psutil.Error:
                return
            return
        waiting, seen = [self.pid], 0
        while waiting and seen < _DEEPEST:
            pid, seen = waiting.pop(0), seen + 1
            yield pid
            waiting.extend(_children(pid))


def _children(pid: int) -> Iterator[int]:
    """The kernel's own list of each thread's children, which is cheaper than looking at every process there is."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  names are enough, and this runs every second
    except OSError:
        return
    for task in tasks:
        yield from map(int, _text(f"/proc/{pid}/task/{task}/children").split())


def _resident(pid: int) -> int | None:
    if not _LINUX:
        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.Error:
            return None
    fields = _text(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else None


def proportional(pids: tuple[int, ...]) -> int | None:
    """The bytes that processes hold together, shared pages counted once; None where it can't be read.

    It takes milliseconds for each gigabyte, during which the process can't map memory: not for every second.
    """
    total = 0
    for pid in pids:
        text = _text(f"/proc/{pid}/smaps_rollup")
        at = text.find("\nPss:")
        if at < 0:
            return None
        total += int(text[at + 5 :].split(None, 1)[0]) * 1024
    return total


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
