"""The Record as it is written: one JSON line for each thing that happened, in the file before the call returns.

The system has every line as soon as it is written, so nothing but the last line can be lost, whatever kills the
process. A disk that is full costs lines, never the run.
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
from ..errors import InvalidFile, MissingFile, UsageError

KIND, VERSION = "record", 1
END = "end"

# Every step is written at first; fast steps after that at this rate, so that a day of them stays below 300 MB.
_ALL_STEPS = 1000
_STEPS_PER_SECOND = 20.0
# For the started program to inherit nothing, and for Windows to write line ends as they are.
_MODE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_log = logging.getLogger("oomph")


class Recorder:
    """Appends to a Record file. Safe to use from several threads.

    A file that is a Record already is continued: a second head line says so.

    Args:
        path: the file; its folder must be there.

    Raises:
        MissingFile: there is no such folder.
        InvalidFile: the file is there and is no Record.
        UsageError: the file can't be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._steps = 0
        self._next_step = 0.0
        self._warned = False
        resumed, self._torn = _look(self.path)
        try:
            self._file: int | None = os.open(self.path, _MODE, 0o644)
        except OSError as error:
            _refuse(self.path, error)
        self._write({"oomph": KIND, "version": VERSION, **_head(), "resumed": resumed})

    def step(self, fields: Mapping[str, Any]) -> None:
        """Write what one step did; `docs/record.md` has the fields that verdicts read."""
        self._steps += 1
        now = time.time()
        if self._steps > _ALL_STEPS and now < self._next_step and not _is_notable(fields):
            return
        self._next_step = now + 1 / _STEPS_PER_SECOND
        self._write({"t": _stamp(now), "step": _plain("a step", fields)})

    def sample(self, fields: Mapping[str, Any]) -> None:
        """Write what was measured at this moment."""
        self._write({"t": _stamp(time.time()), "sample": _plain("a sample", fields)})

    def event(self, kind: str, /, **facts: Any) -> None:
        """Write that something happened: `recorder.event("oom", micro_batches=4)`."""
        self._write({**_plain("an event", facts), "t": _stamp(time.time()), "event": kind})

    def close(self) -> None:
        """Write the end, which tells a run that ended by itself from one that was killed."""
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
                # One call for one line, so that several writers don't mix; a torn line before it is ended first.
                whole = b"\n" + data if self._torn else data
                self._torn = True
                self._torn = os.write(self._file, whole) < len(whole)
            except OSError as error:
                if not self._warned:
                    self._warned = True
                    _log.warning("The Record %s loses lines: %s.", self.path, error.strerror)


def _look(path: Path) -> tuple[bool, bool]:
    """Whether a file is a Record already, and whether its last line was cut short."""
    try:
        with path.open("rb") as file:
            head = file.readline(1 << 16)
            if not head.strip():
                return False, False
            if not is_head(head):
                raise InvalidFile(f"{str(path)!r} is there and is no Record", "name another file")
            file.seek(-1, os.SEEK_END)
            return True, file.read(1) != b"\n"
    except FileNotFoundError:
        return False, False
    except OSError as error:
        _refuse(path, error)


def _refuse(path: Path, error: OSError) -> NoReturn:
    if not path.parent.is_dir():
        raise MissingFile(f"there is no folder {str(path.parent)!r}", "make it, or name another one") from None
    raise UsageError(f"{str(path)!r} can't be written ({error.strerror})", "name another file") from None


def is_head(line: bytes) -> bool:
    """Whether a line is the head of a Record."""
    try:
        data = json.loads(line)
    except ValueError:
        return False
    return isinstance(data, dict) and data.get("oomph") == KIND


def _head() -> dict[str, Any]:
    own = psutil.Process()
    release = platform.release().lower()
    return {
        "began": _stamp(time.time()),
        "pid": own.pid,
        "started": _stamp(own.create_time()),
        "host": socket.gethostname(),
        "system": "wsl" if "microsoft" in release else platform.system().lower(),
        "program": Path(sys.argv[0]).name if sys.argv else "",
        "written_by": __version__,
    }


def _stamp(seconds: float) -> float:
    return round(seconds, 3)


def _is_notable(fields: Mapping[str, Any]) -> bool:
    """Steps that are never left out: something went wrong in them, or a GPU has told what it tells now and then."""
    loss = fields.get("loss")
    told = bool(fields.get("retries") or fields.get("skipped")) or "late" in fields
    return told or (isinstance(loss, float) and not math.isfinite(loss))


def _plain(what: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): _value(what, str(name), value) for name, value in fields.items() if value is not None}


def _value(what: str, name: str, value: Any) -> Any:
    """A value as JSON has it; a number that JSON doesn't have becomes its name."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return _plain(what, value)
    if isinstance(value, (list, tuple)):
        return [_value(what, name, item) for item in value]
    # Reading a tensor on a GPU would make the step wait for it: that is the caller's decision.
    if hasattr(value, "item") and getattr(getattr(value, "device", None), "type", "cpu") == "cpu":
        return _value(what, name, value.item())
    raise UsageError(
        f"{name} of {what} is a {type(value).__name__}", "give a plain number or text, such as loss.item()"
    )
