"""The processes of a cell: found by descent, by group and by a mark in their environment, and killed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import psutil

from ...supervisor import descendants

CELL_MARK = "OOMPH_SWEEP_CELL"  # an environment variable; its value is the cell's folder

_KILL_SECONDS = 30.0  # the driver may take seconds to release the GPU memory of a process
_POLL_SECONDS = 0.02


def kill_cell(mark: str, supervisor: int | None = None) -> None:
    """Kill all processes with the mark of a cell or below its supervisor, except this one; wait until they are gone."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        processes = list(_cell_processes(mark, supervisor))
        if not processes:
            return
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(_POLL_SECONDS)


def _cell_processes(mark: str, supervisor: int | None) -> Iterator[psutil.Process]:
    below = {} if supervisor is None else descendants(supervisor)
    for process in psutil.process_iter():
        if process.pid != os.getpid() and (process.pid in below or _belongs(process, mark, supervisor)):
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    yield process


def _belongs(process: psutil.Process, mark: str, group: int | None) -> bool:
    """Return True if a process is in the group; or has the mark, which it keeps when it changes its session."""
    if group is not None and hasattr(os, "getpgid"):
        with contextlib.suppress(OSError):
            if os.getpgid(process.pid) == group:
                return True
    try:
        return process.environ().get(CELL_MARK) == mark
    except (psutil.Error, OSError):
        return False  # it has ended, or belongs to another user
