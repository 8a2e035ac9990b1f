"""Readings for the screen of `oomph watch`: a sample, the processes, and the progress of the selected run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._machine_probe import MachineProbe
from ._probe import Probe
from ._process_use import ProcessInfo, ProcessInfoCache, ProcessUse
from ._run_progress import RecordFollower, RunProgress


@dataclass(frozen=True)
class Reading:
    """One moment of a machine or of a process tree.

    Attributes:
        time: In seconds since 1970.
        root: The watched process; None if the whole machine is watched.
        sample: The fields of a sample, as in a Record.
        processes: Of a machine, its process trees, largest first. Of a process, the process and its descendants.
        infos: Names, users and command lines of the processes and their descendants, by pid.
    """

    time: float
    root: int | None
    sample: Mapping[str, Any]
    processes: tuple[ProcessUse, ...]
    infos: Mapping[int, ProcessInfo]


class Watcher:
    """Reads the machine, or a process and its descendants.

    Args:
        pid: The process to watch; the whole machine if None.

    Raises:
        UsageError: The process doesn't exist.
    """

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self._probe = MachineProbe() if pid is None else Probe(pid)
        self._infos = ProcessInfoCache()
        self._follower: RecordFollower | None = None
        self._processes: tuple[ProcessUse, ...] = ()

    @property
    def is_alive(self) -> bool:
        """False if the watched process has ended."""
        return not isinstance(self._probe, Probe) or self._probe.tree.is_alive

    def read(self) -> Reading:
        """Return the current state."""
        sample = self._probe.read()
        probe = self._probe
        self._processes = probe.list_processes(self._infos) if isinstance(probe, Probe) else probe.processes
        pids = [member.pid for use in self._processes for member in use.members]
        self._infos.keep_only(pids)
        return Reading(time.time(), self.pid, sample, self._processes, {pid: self._infos[pid] for pid in pids})

    def read_progress(self, pid: int) -> RunProgress | None:
        """Return the progress of a process of the last reading, if it or a descendant writes a Record."""
        if self._follower is None or self._follower.pid != pid:
            self._follower = RecordFollower(pid)
        uses = [use for use in self._processes if pid in {use.pid, self.pid}]
        return self._follower.read([member.pid for use in uses for member in use.members])

    def close(self) -> None:
        """Release the driver."""
        self._probe.close()
