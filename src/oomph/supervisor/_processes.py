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


def descendants(supervisor: int) -> dict[int, int]:
    """Return the RSS in bytes of each process below a supervisor, by pid."""
    try:
        processes = ProcessTree(supervisor).read()
    except UsageError:
        return {}  # it has ended
    return {process.pid: process.rss for process in processes if process.pid != supervisor}


def kill_descendants(supervisor: int, spared: Collection[int] = ()) -> None:
    """Kill all processes below a supervisor and wait until they are gone, or zombies; a zombie has no memory."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        pids = [pid for pid, rss in descendants(supervisor).items() if rss and pid not in spared]
        if not pids:
            return
        for pid in pids:
            send_signal(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
