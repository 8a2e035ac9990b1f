"""The processes below a supervisor: kept in its tree, measured, and killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import time
from collections.abc import Collection

from ..errors import UsageError
from ..monitor import ProcessTree

_PR_SET_CHILD_SUBREAPER = 36
_KILL_SECONDS = 30.0  # the driver may take seconds to release the GPU memory of a process
_POLL_SECONDS = 0.02


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent ends (on Linux), so that they stay in its tree."""
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(supervisor: int, without: Collection[int] = ()) -> dict[int, int]:
    """Return the RSS in bytes of each process below a supervisor, by pid; some may be left out with those below."""
    try:
        processes = ProcessTree(supervisor, without).read()
    except UsageError:
        return {}  # it has ended
    return {process.pid: process.rss for process in processes if process.pid != supervisor}


class CommandTree:
    """The processes of commands that this process starts.

    A shell replaces itself by its last command, so that what it had started before, such as the `tee` of
    `oomph run … > >(tee train.log)`, is below this process as well. It belongs to the user: it is neither counted nor
    killed.
    """

    def __init__(self) -> None:
        self._bystanders = frozenset(descendants(os.getpid()))

    def read(self) -> dict[int, int]:
        """Return the RSS in bytes of each process, by pid."""
        return descendants(os.getpid(), self._bystanders)

    def kill(self, spared: Collection[int] = ()) -> None:
        """Kill all processes and wait until they are gone, or zombies; a zombie has no memory."""
        deadline = time.monotonic() + _KILL_SECONDS
        while time.monotonic() < deadline:
            pids = [pid for pid, rss in self.read().items() if rss and pid not in spared]
            if not pids:
                return
            for pid in pids:
                send_signal(pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
