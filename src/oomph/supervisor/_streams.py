"""The standard streams of a command: which of them are terminals, files or pipes here, and stay so for the command."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import stat
from dataclasses import dataclass
from pathlib import Path

STDIN, STDOUT, STDERR = 0, 1, 2


class StreamKind(enum.Enum):
    """What a standard stream is connected to."""

    TERMINAL = "terminal"
    FILE = "file"
    PIPE = "pipe"
    CLOSED = "closed"


@dataclass(frozen=True)
class Streams:
    """The standard streams of this process.

    Attributes:
        stdin, stdout, stderr: What they are connected to.
        is_merged: True if both outputs are the same terminal, pipe or file, so that their order must be kept.
        others: File descriptors above these that this process was started with and passes on, as for `3>file` and
            `<(command)` of a shell.
    """

    stdin: StreamKind
    stdout: StreamKind
    stderr: StreamKind
    is_merged: bool
    others: tuple[int, ...] = ()

    @property
    def is_interactive(self) -> bool:
        """True if the command gets a terminal of its own, with its keys: Ctrl-C and Ctrl-Z go through it."""
        return self.stdin is StreamKind.TERMINAL and self.stdout is StreamKind.TERMINAL

    @property
    def kinds(self) -> dict[int, StreamKind]:
        """The kind of each output, by its file descriptor."""
        return {STDOUT: self.stdout, STDERR: self.stderr}


def read_streams() -> Streams:
    """Inspect the streams that this process was started with."""
    kinds = [_kind(stream) for stream in (STDIN, STDOUT, STDERR)]
    is_merged = _identity(STDOUT) == _identity(STDERR)
    return Streams(kinds[0], kinds[1], kinds[2], is_merged, _inherited_descriptors())


def _inherited_descriptors() -> tuple[int, ...]:
    """Return what a program that this process becomes would keep open; what Python opens itself is not inheritable."""
    folder = Path("/dev/fd")
    inherited = []
    for descriptor in sorted(int(path.name) for path in folder.iterdir()) if folder.is_dir() else ():
        with contextlib.suppress(OSError):  # that of the listing itself
            if descriptor > STDERR and os.get_inheritable(descriptor):
                inherited.append(descriptor)
    return tuple(inherited)


def _kind(stream: int) -> StreamKind:
    try:
        mode = os.fstat(stream).st_mode
    except OSError:
        return StreamKind.CLOSED
    if os.isatty(stream):
        return StreamKind.TERMINAL
    return StreamKind.FILE if stat.S_ISREG(mode) else StreamKind.PIPE


def _identity(stream: int) -> tuple[int, int, int] | None:
    try:
        status = os.fstat(stream)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_rdev


@dataclass(frozen=True)
class WrittenFile:
    """A file that the command writes, and where its output begins in it."""

    path: Path
    start: int

    @property
    def size(self) -> int:
        """The current size in bytes; 0 if it is gone."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def read_end(self, limit: int) -> bytes:
        """Return the last bytes of the output; nothing if the file can't be read."""
        return self._read(max(self.start, self.size - limit), limit)

    def read_start(self, limit: int) -> bytes:
        """Return the first bytes of the output; nothing if the file can't be read."""
        return self._read(self.start, limit)

    def _read(self, position: int, limit: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(position)
                return file.read(limit)
        except OSError:
            return b""


def inherited_files(streams: Streams) -> tuple[WrittenFile, ...]:
    """Return the files that the outputs already go to; they may have content before that of the command."""
    outputs = [stream for stream, kind in streams.kinds.items() if kind is StreamKind.FILE]
    return tuple(_written_file(stream) for stream in (outputs[:1] if streams.is_merged else outputs))


def _written_file(stream: int) -> WrittenFile:
    is_appended = fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_APPEND
    start = os.fstat(stream).st_size if is_appended else os.lseek(stream, 0, os.SEEK_CUR)
    # The file was opened for writing only, so its name is opened again; /dev/fd leads to it on all systems.
    return WrittenFile(Path(os.path.realpath(f"/dev/fd/{stream}")), start)
