"""Processes for workers: thin where they can be, with all that multiprocessing does otherwise.

A spawned process of multiprocessing imports the program that started it, torch and all, and runs it once more where it
has no `if __name__ == "__main__":`. A thin one is given the worker and nothing else.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ...units import MIB

STARTS = ("spawn", "forkserver", "fork")
# The C library gives memory of pictures back to the system each time, which costs more than painting them, unless told.
_KEEP = {"MALLOC_MMAP_THRESHOLD_": str(32 * MIB), "MALLOC_TRIM_THRESHOLD_": str(32 * MIB)}
_BEGIN = "import json,sys; sys.path[:]=json.loads(sys.argv[2]); from oomph.data.loader._process import begin; begin()"


class Process(Protocol):
    """A process that was started."""

    @property
    def exitcode(self) -> int | None:
        """How it ended; None while it runs."""
        ...

    @property
    def pid(self) -> int | None:
        """Its number."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        ...

    def is_alive(self) -> bool:
        """Whether it runs."""
        ...

    def kill(self) -> None:
        """End it."""
        ...


class _Thin:
    """A process that was given what it does, and imports nothing else."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    @property
    def exitcode(self) -> int | None:
        return self._popen.poll()

    @property
    def pid(self) -> int | None:
        return self._popen.pid

    def join(self, timeout: float | None = None) -> None:
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return

    def is_alive(self) -> bool:
        return self.exitcode is None

    def kill(self) -> None:
        self._popen.kill()


def launch(start: str, target: Callable[..., None], args: tuple[Any, ...]) -> tuple[Process, Connection]:
    """Start a process that calls `target(connection, *args)`, and return it with our end of the connection.

    Raises:
        PicklingError, AttributeError, TypeError: the arguments can't be sent.
    """
    content = pickle.dumps((target, args)) if start == "spawn" and os.name == "posix" else None
    # What is defined in the program itself is found only by importing it.
    if content is None or b"__main__" in content:
        return _through_multiprocessing(start, target, args)
    ours, theirs = multiprocessing.Pipe()
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, "-c", _BEGIN, str(number), json.dumps(sys.path)]
        process = _Thin(
            subprocess.Popen(  # noqa: S603  ourselves
                command, pass_fds=(number,), stdin=subprocess.DEVNULL, env={**_KEEP, **os.environ}
            )
        )
    ours.send_bytes(content)
    return process, ours


def begin() -> None:
    """What a thin process does first."""
    connection = Connection(int(sys.argv[1]))
    target, args = pickle.loads(connection.recv_bytes())  # noqa: S301  from the process that started this one
    target(connection, *args)


def _through_multiprocessing(
    start: str, target: Callable[..., None], args: tuple[Any, ...]
) -> tuple[Process, Connection]:
    context: Any = multiprocessing.get_context(start)
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *args), name="oomph-data", daemon=True)
    process.start()
    theirs.close()
    return process, ours
