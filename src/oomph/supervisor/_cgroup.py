"""The cgroup of a command: a limit on its RAM that the kernel enforces, where one may be created.

In version 1 it is a group inside that of oomph. In version 2 a group that has processes can't have limited groups
inside it, so it is created next to that of oomph, unless this would leave a limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from ..machine import MemoryCgroup, NoLimit, memory_cgroup, memory_cgroups
from ..units import MIB

_NAME = "oomph-run-"
_LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}
# Without a limit on swap, a command would be swapped instead of stopped.
_SWAP_FILES = {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}
_EXCESS_DIVISOR, _MIN_EXCESS = 20, 64 * MIB  # what the kernel allows above the budget: 5 %, at least this size
_REMOVE_SECONDS = 5.0  # the kernel may take a moment to release the memory of a group
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class CommandCgroup:
    """A cgroup with a limit.

    Attributes:
        folder: Its folder.
        home: The folder of the group that oomph is in.
        version: The cgroup version, 1 or 2.
        limit: In bytes.
    """

    folder: Path
    home: Path
    version: int
    limit: int

    def join(self) -> None:
        """Move this process into it; `contains` tells whether it worked."""
        with contextlib.suppress(OSError):
            _write(self.folder / "cgroup.procs", "0")

    def contains(self, pid: int) -> bool:
        """Return True if a process is in it."""
        return str(pid) in self._pids()

    @property
    def used(self) -> int:
        """Memory in use without the page cache, in bytes."""
        return memory_cgroup(str(self.folder), self.version).used or 0

    @property
    def kills(self) -> int:
        """Number of its processes that the kernel has killed."""
        return memory_cgroup(str(self.folder), self.version).oom_kills.known or 0

    def remove(self) -> None:
        """Remove it; processes that are still in it go back to the group of oomph."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        while time.monotonic() < deadline:
            for pid in self._pids():
                with contextlib.suppress(OSError):
                    _write(self.home / "cgroup.procs", pid)
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            if not self.folder.exists():
                return
            time.sleep(_POLL_SECONDS)

    def _pids(self) -> list[str]:
        try:
            return (self.folder / "cgroup.procs").read_text(encoding="ascii").split()
        except OSError:
            return []


def create_cgroup(budget: int) -> CommandCgroup | None:
    """Create a cgroup for a command; None if this user may not, or there is no memory controller.

    The supervisor stops a command above its budget, which gives it time to save. The kernel kills it a little later.
    """
    limit = budget + max(budget // _EXCESS_DIVISOR, _MIN_EXCESS)
    levels = memory_cgroups()
    if not levels:
        return None
    own = levels[0]
    home = Path(own.path)
    parent = home if own.version == 1 else home.parent
    if own.version != 1 and (len(levels) < 2 or _has_limit(own)):  # noqa: PLR2004  the root has no group next to it
        return None
    _remove_stale(parent)
    cgroup = CommandCgroup(parent / f"{_NAME}{os.getpid()}", home, own.version, limit)
    try:
        cgroup.folder.mkdir()
        _write(cgroup.folder / _LIMIT_FILES[own.version], str(limit))
    except OSError:
        with contextlib.suppress(OSError):
            cgroup.folder.rmdir()
        return None
    with contextlib.suppress(OSError):  # the kernel may not count swap
        _write(cgroup.folder / _SWAP_FILES[own.version], str(limit if own.version == 1 else 0))
    return cgroup


def _has_limit(cgroup: MemoryCgroup) -> bool:
    """Return True if a group has a limit, which its processes must not escape; Slurm's groups always count."""
    quota = Path(cgroup.path) / "cpu.max"
    with contextlib.suppress(OSError):
        if not quota.read_text(encoding="ascii").startswith("max"):
            return True
    is_limited = any(isinstance(limit.known, int) for limit in (cgroup.limit, cgroup.high))
    return is_limited or "slurm" in cgroup.path or not isinstance(cgroup.limit.known, NoLimit)


def _remove_stale(parent: Path) -> None:
    """Remove groups of runs that were killed; a group that is in use can't be removed."""
    with contextlib.suppress(OSError):
        for folder in parent.iterdir():
            match = re.fullmatch(_NAME + r"(\d+)", folder.name)
            if match and not Path(f"/proc/{match[1]}").exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _write(path: Path, text: str) -> None:
    # Not Path.write_text, which truncates: some kernels refuse that for these files.
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
