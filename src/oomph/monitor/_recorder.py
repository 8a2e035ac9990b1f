"""Writing of Records: one JSON line per sample, step and event, in the file before the call returns.

The system has every line as soon as it is written, so a killed process loses at most its last line. A full disk loses
lines, but it never stops the run.
"""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import psutil

from .. import __version__
from ..errors import InvalidFile, MissingFile, UsageError, shorten

KIND, VERSION = "record", 1
END = "end"

# The first steps are all written. After that, this rate keeps a day of fast steps below 300 MB.
_UNLIMITED_STEPS = 1000
_MAX_STEPS_PER_SECOND = 20.0
_MAX_HEADER_BYTES = 1 << 16
# Child processes don't inherit the file, and Windows doesn't translate line ends.
_OPEN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_log = logging.getLogger("oomph")


class Recorder:
    """Appends to a Record file; safe to use from several threads.

    An existing Record is continued after a new header line.

    Args:
        path: The file; its folder must exist.

    Raises:
        MissingFile: The folder doesn't exist.
        InvalidFile: The file exists and is not a Record.
        UsageError: The file can't be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._steps = 0
        self._next_step_time = 0.0
        self._has_warned = False
        is_resumed, self._needs_newline = _inspect(self.path)
        try:
            self._file: int | None = os.open(self.path, _OPEN_FLAGS, 0o644)
        except OSError as error:
            _raise_not_writable(self.path, error)
        self._write({"oomph": KIND, "version": VERSION, **_header_fields(), "resumed": is_resumed})

    def step(self, fields: Mapping[str, Any]) -> None:
        """Write a training step; `docs/record.md` lists the fields that the diagnosis reads."""
        self._steps += 1
        now = time.time()
        if self._steps > _UNLIMITED_STEPS and now < self._next_step_time and not _is_notable(fields):
            return
        self._next_step_time = now + 1 / _MAX_STEPS_PER_SECOND
        self._write({"t": _timestamp(now), "step": _plain_fields("a step", fields)})

    def sample(self, fields: Mapping[str, Any]) -> None:
        """Write a sample."""
        self._write({"t": _timestamp(time.time()), "sample": _plain_fields("a sample", fields)})

    def event(self, kind: str, /, **fields: Any) -> None:
        """Write an event: `recorder.event("oom", micro_batches=4)`."""
        self._write({**_plain_fields("an event", fields), "t": _timestamp(time.time()), "event": kind})

    def close(self) -> None:
        """Write the end, which distinguishes a run that ended from one that was killed."""
        with self._lock:
            if self._file is not None:
                self.event(END)
                os.close(self._file)
                self._file = None

    def __enter__(self) -> Recorder:  # noqa: PYI034  Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self._lock:
            if self._file is None:
                return
            try:
                # One call per line, so that several writers don't mix. A truncated line before it is ended first.
                whole = b"\n" + data if self._needs_newline else data
                self._needs_newline = True
                self._needs_newline = os.write(self._file, whole) < len(whole)
            except OSError as error:
                if not self._has_warned:
                    self._has_warned = True
                    _log.warning("Lines of the Record %s are lost: %s.", self.path, error.strerror)


def _inspect(path: Path) -> tuple[bool, bool]:
    """Return True if a file is a Record, and True if its last line is truncated."""
    try:
        with path.open("rb") as file:
            header = file.readline(_MAX_HEADER_BYTES)
            if not header.strip():
                return False, False
            if not is_header(header):
                raise InvalidFile(f"{shorten(str(path))!r} exists and is not a Record", "name another file")
            file.seek(-1, os.SEEK_END)
            return True, file.read(1) != b"\n"
    except FileNotFoundError:
        return False, False
    except OSError as error:
        _raise_not_writable(path, error)


def _raise_not_writable(path: Path, error: OSError) -> NoReturn:
    if not path.parent.is_dir():
        folder = shorten(str(path.parent))
        raise MissingFile(f"there is no folder {folder!r}", "create it, or name another one") from None
    raise UsageError(f"{shorten(str(path))!r} can't be written ({error.strerror})", "name another file") from None


def is_header(line: bytes) -> bool:
    """Return True if a line is the header of a Record."""
    try:
        data = json.loads(line)
    except ValueError:
        return False
    return isinstance(data, dict) and data.get("oomph") == KIND


def _header_fields() -> dict[str, Any]:
    process = psutil.Process()
    release = platform.release().lower()
    return {
        "start_time": _timestamp(time.time()),
        "pid": process.pid,
        "process_start_time": _timestamp(process.create_time()),
        "host": socket.gethostname(),
        "system": "wsl" if "microsoft" in release else platform.system().lower(),
        "program": Path(sys.argv[0]).name if sys.argv else "",
        "oomph_version": __version__,
    }


def _timestamp(seconds: float) -> float:
    return round(seconds, 3)


def _is_notable(fields: Mapping[str, Any]) -> bool:
    """Return True for steps that are always written: with a problem, or with values that a GPU reports rarely."""
    loss = fields.get("loss")
    if fields.get("retries") or fields.get("skipped") or "late" in fields:
        return True
    return isinstance(loss, float) and not math.isfinite(loss)


def _plain_fields(owner: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): _plain_value(owner, str(name), value) for name, value in fields.items() if value is not None}


def _plain_value(owner: str, name: str, value: Any) -> Any:
    """Convert a value for JSON; NaN and infinity become text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain_value(owner, name, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_value(owner, name, item) for item in value]
    # Reading a tensor on a GPU makes the step wait for it, so that is left to the caller.
    if hasattr(value, "item") and getattr(getattr(value, "device", None), "type", "cpu") == "cpu":
        return _plain_value(owner, name, value.item())
    raise UsageError(
        f"{shorten(name)} of {owner} is a {type(value).__name__}", "use a plain number or text, such as loss.item()"
    )
