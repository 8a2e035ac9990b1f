"""Copies of a command's output: to where it would go without oomph, and into a log."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_READ_BYTES = 1 << 16  # fits into the cache of a core; larger ones are slower
_PIPE_BYTES = 1 << 18
_DRAIN_SECONDS = 1.0  # a process that is left running may write without a pause


class OutputLog:
    """The file that the output is copied into; a full disk loses the rest of the copy, but never stops the command.

    Args:
        path: The file.
        tell: Called with a sentence for the user.

    Attributes:
        path: The file.
        written: Bytes of output since it was opened.
    """

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.path, self.written = path, 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file: int | None = os.open(path, flags, 0o644)

    def write(self, data: bytes) -> None:
        """Append to the file."""
        self.written += len(data)
        if self._file is None:
            return
        try:
            write_all(self._file, data)
        except OSError as error:
            self._tell(f"The rest of the output is not copied into {self.path}: {error.strerror}.")
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


@dataclass
class OutputCopy:
    """One way of the output.

    Attributes:
        source: The file descriptor that the command's output is read from.
        target: The one that it is written to; None once it is a terminal that is gone.
        is_terminal: True if the source is a pseudo-terminal.
    """

    source: int
    target: int | None
    is_terminal: bool = False

    def copy(self, log: OutputLog) -> bool:
        """Copy what is there; return False at the end of the output, or if nobody reads it any more."""
        try:
            data = os.read(self.source, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a pseudo-terminal whose last writer has closed it
        return bool(data) and self._pass_on(data, log)

    def drain(self, log: OutputLog) -> None:
        """Copy the rest after the command's end: processes that it left running may keep the output open for long."""
        remaining = 0
        with contextlib.suppress(OSError):
            buffer = bytearray(4)
            fcntl.ioctl(self.source, termios.FIONREAD, buffer)
            remaining = int.from_bytes(buffer, "little")
        deadline = time.monotonic() + _DRAIN_SECONDS
        while remaining > 0 or (self.is_terminal and time.monotonic() < deadline):
            # The kernel passes the output of a terminal on a little later.
            if not select.select([self.source], [], [], 0.05 if self.is_terminal else 0)[0]:
                return
            try:
                data = os.read(self.source, _READ_BYTES)
            except OSError:
                return
            if not data or not self._pass_on(data, log):
                return
            remaining -= len(data)

    def _pass_on(self, data: bytes, log: OutputLog) -> bool:
        log.write(data)
        try:
            if self.target is not None:
                write_all(self.target, data)
        except OSError:
            # The reader is gone, so the command gets SIGPIPE at its next output, as without oomph. A terminal that is
            # gone sends SIGHUP; a command that ignores it goes on, and must not wait for a reader.
            self.target = None
            return self.is_terminal
        return True


def open_pipe() -> tuple[int, int]:
    """Return the ends of a pipe with a large buffer: fewer switches between the processes."""
    reader, writer = os.pipe()
    with contextlib.suppress(OSError, AttributeError):  # Linux, and Python 3.10 or later
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return reader, writer


def write_all(target: int, data: bytes) -> None:
    """Write all bytes, also to a file descriptor that another process has made non-blocking.

    Raises:
        OSError: The target can't be written.
    """
    view = memoryview(data)
    while view:
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(target, view) :]
        if view:
            select.select([], [target], [])
