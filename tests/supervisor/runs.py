"""Runs of `oomph run` in processes of their own, with pipes or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

OOMPH = [sys.executable, "-m", "oomph", "run"]
SECONDS = 30.0


@dataclass(frozen=True)
class Ended:
    """A supervisor that has ended."""

    pid: int
    returncode: int
    stdout: bytes
    stderr: bytes


def run(arguments: Sequence[str | Path], cwd: Path, stdin: bytes = b"", **environment: Any) -> Ended:
    """Run `oomph run` with pipes."""
    return run_program([*OOMPH, *map(str, arguments)], cwd, stdin, **environment)


def run_program(argv: Sequence[str], cwd: Path, stdin: bytes = b"", **environment: Any) -> Ended:
    """Run a program that becomes `oomph run`."""
    pipe = subprocess.PIPE
    with started(argv, cwd, stdin=pipe, stderr=pipe, env={**os.environ, **environment}) as process:
        stdout, stderr = process.communicate(stdin, timeout=120)
        return Ended(process.pid, process.returncode, stdout, stderr)


@contextlib.contextmanager
def started(argv: Sequence[str], cwd: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program with a pipe as its output; if it still runs at the end of the block, its processes are killed."""
    process = subprocess.Popen(argv, cwd=cwd, **{"stdout": subprocess.PIPE, **options})
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for descendant in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
                descendant.kill()
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    """Return the first line of its output."""
    assert process.stdout is not None
    return process.stdout.readline()


def python(source: str) -> list[str]:
    """Return the command that runs Python code."""
    return [sys.executable, "-u", "-c", source]


def wait_for(condition: object, seconds: float = SECONDS) -> None:
    """Wait until a function returns a true value."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Return True if a process runs; a zombie doesn't."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class Terminal:
    """A real terminal with a program on it: keys go in, its output comes out."""

    def __init__(self, argv: Sequence[str], cwd: Path, size: tuple[int, int] = (30, 100)) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(*size)
        self.settings = termios.tcgetattr(self._slave)
        self.output = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, *argv],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            cwd=cwd,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._master, keys)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, pattern: bytes) -> re.Match[bytes]:
        """Read until the output contains a pattern."""
        deadline = time.monotonic() + SECONDS
        while (match := re.search(pattern, self.output)) is None:
            assert time.monotonic() < deadline, self.output
            self._read(0.1)
        return match

    def wait(self) -> int:
        """Read until the program has ended; return its exit code."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.output
            self._read(0.05)
        while self._read(0.1):
            pass
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        """True if the settings of the terminal are those of the start."""
        return bool(termios.tcgetattr(self._slave) == self.settings)

    def hang_up(self) -> None:
        """Close the window; its processes go on if they ignore that."""
        for end in (self._master, self._slave):
            os.close(end)

    def close(self) -> None:
        """Close the window, and end what ran in it."""
        self.hang_up()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        self.output += os.read(self._master, 65536)
        return True


# A session leader that opens a terminal makes it its controlling terminal, so that keys send signals.
_ON_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@contextlib.contextmanager
def on_terminal(argv: Sequence[str], cwd: Path, size: tuple[int, int] = (30, 100)) -> Iterator[Terminal]:
    """Run a program on a terminal of its own."""
    terminal = Terminal(argv, cwd, size)
    try:
        yield terminal
    finally:
        terminal.close()
