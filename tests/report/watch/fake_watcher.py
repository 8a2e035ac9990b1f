"""A watcher of prepared processes, for the thread and the app."""

from __future__ import annotations

import time
from pathlib import Path

from oomph.errors import UsageError
from oomph.monitor import ProcessUse, Reading, RunProgress
from oomph.units import GIB

from .readings import machine_sample, process, reading


class FakeMachine:
    """Processes that can end; `open` is what the app calls instead of `Watcher`."""

    def __init__(self, *pids: int) -> None:
        self.processes: dict[int, ProcessUse] = {pid: process(pid, children=1, gpu={0: pid * GIB}) for pid in pids}
        self.opened: list[int | None] = []
        self.closed: list[int | None] = []
        self.error: Exception | None = None
        self.ended_meanwhile: set[int] = set()  # still listed, but no longer there

    def open(self, pid: int | None) -> FakeWatcher:
        if pid is not None and (pid not in self.processes or pid in self.ended_meanwhile):
            raise UsageError(f"there is no process {pid}", "select another one")
        self.opened.append(pid)
        return FakeWatcher(self, pid)


class FakeWatcher:
    def __init__(self, machine: FakeMachine, pid: int | None) -> None:
        self.machine, self.pid = machine, pid

    @property
    def is_alive(self) -> bool:
        return self.pid is None or self.pid in self.machine.processes

    def read(self) -> Reading:
        if self.machine.error is not None:
            raise self.machine.error
        if self.pid is None:
            processes = tuple(self.machine.processes.values())
            return reading(None, *processes, time=time.time(), sample=machine_sample())
        tree = self.machine.processes[self.pid]
        members = tuple(ProcessUse(member.pid, "python", (member,)) for member in tree.members)
        sample = {"rss": tree.rss, "children": tree.children, "ram_total": 64 * GIB, "ram_available": GIB}
        return reading(self.pid, *members, time=time.time(), sample=sample)

    def read_progress(self, pid: int) -> RunProgress | None:
        return RunProgress(Path("run.jsonl"), time.time(), step=pid) if pid % 2 == 0 else None

    def close(self) -> None:
        self.machine.closed.append(self.pid)
