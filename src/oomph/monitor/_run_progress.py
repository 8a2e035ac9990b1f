"""The progress of a run, from the end of the Record that its process is writing."""

from __future__ import annotations

import itertools
import os
import platform
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from ..errors import OomphError
from ..units import KIB
from ._cost_limit import CostLimit
from ._record import Record, parse_record
from ._recorder import END, is_header
from .diagnosis import diagnose_record

_MAX_HEADER_BYTES = 64 * KIB
_TAIL_BYTES = 128 * KIB  # several minutes of samples and steps
_MAX_OPEN_FILES, _MAX_PROCESSES = 64, 16
# The verdict takes milliseconds.
_MIN_READ_INTERVAL_SECONDS, _MAX_READ_FRACTION = 1.0, 0.005
_MIN_SEARCH_INTERVAL_SECONDS, _MAX_SEARCH_FRACTION = 2.0, 0.002


@dataclass(frozen=True)
class RunProgress:
    """The latest state of a run that writes a Record; values that it doesn't write are None.

    Attributes:
        path: The Record.
        time: When its last line was written, in seconds since 1970.
        step: Number of the last step.
        loss: The last loss.
        step_seconds: Duration of the last step.
        micro_batches: Number of micro-batches of the last step.
        retries: Number of retries in the end of the Record that was read.
        findings: Titles of what the diagnosis found in it, most important first.
    """

    path: Path
    time: float
    step: int | None = None
    loss: float | None = None
    step_seconds: float | None = None
    micro_batches: int | None = None
    retries: int = 0
    findings: tuple[str, ...] = ()


class RecordFollower:
    """Finds the Record that a process or one of its descendants writes, and reads its end.

    Searching and reading take little of the time, however many files are open and however many steps are written.

    Attributes:
        pid: The process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._writer: tuple[int, Path] | None = None
        self._progress: RunProgress | None = None
        self._search_limit = CostLimit(_MIN_SEARCH_INTERVAL_SECONDS, _MAX_SEARCH_FRACTION)
        self._read_limit = CostLimit(_MIN_READ_INTERVAL_SECONDS, _MAX_READ_FRACTION)

    def read(self, pids: Sequence[int]) -> RunProgress | None:
        """Return the progress of the first process that writes a Record; `pids` are the process and its descendants."""
        if self._writer is None and self._search_limit.is_due:
            with self._search_limit.measure():
                self._writer = find_record(pids)
        if self._writer is not None and self._read_limit.is_due:
            with self._read_limit.measure():
                self._progress = read_progress(*self._writer)
            if self._progress is None:
                self._writer = None  # closed: the process may open another one
        return self._progress


def find_record(pids: Sequence[int]) -> tuple[int, Path] | None:
    """Return the first process that has a Record open, with the path of the one that was written last."""
    if platform.system() == "Windows":
        return None  # listing the open files of another process may hang there
    for pid in pids[:_MAX_PROCESSES]:
        if records := [path for path in _open_files(pid) if _is_record(path)]:
            return pid, max(records, key=_write_time)
    return None


def read_progress(pid: int, path: Path) -> RunProgress | None:
    """Return the progress that the end of a Record shows, or None if it is closed or can't be read."""
    try:
        record = _load_end(path)
        process = psutil.Process(pid)
        # The first header may be that of an earlier run which this process continues.
        header = {"pid": pid, "process_start_time": process.create_time(), "host": socket.gethostname()}
    except (OSError, OomphError, psutil.Error):
        return None
    if _is_closed(record):
        return None
    record = replace(record, header={**record.header, **header})
    last = record.steps[-1] if record.steps else {}
    return RunProgress(
        path=path,
        time=record.last_time,
        step=_whole_number(last.get("step")),
        loss=_latest(record, "loss"),
        step_seconds=_number(last.get("seconds")),
        micro_batches=_whole_number(last.get("micro_batches")),
        retries=sum(_whole_number(step.get("retries")) or 0 for step in record.steps),
        findings=tuple(finding.title for finding in diagnose_record(record)),
    )


def _open_files(pid: int) -> Iterator[Path]:
    """Yield the files that a process has open for appending; macOS doesn't tell how a file is open."""
    try:
        files = psutil.Process(pid).open_files()
    except (psutil.Error, OSError):
        return
    appended = (Path(file.path) for file in files if getattr(file, "mode", "a").startswith("a"))
    yield from itertools.islice(appended, _MAX_OPEN_FILES)


def _is_record(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return is_header(file.readline(_MAX_HEADER_BYTES))
    except OSError:
        return False


def _write_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # deleted meanwhile


def _load_end(path: Path) -> Record:
    """Load the header and the last lines of a Record."""
    with path.open("rb") as file:
        header = file.readline(_MAX_HEADER_BYTES)
        start = max(len(header), os.fstat(file.fileno()).st_size - _TAIL_BYTES)
        file.seek(start)
        tail = file.read(_TAIL_BYTES + _MAX_HEADER_BYTES)
    if start > len(header):
        tail = tail.partition(b"\n")[2]  # the first line is incomplete
    return parse_record(header + tail, str(path))


def _is_closed(record: Record) -> bool:
    return bool(record.events) and record.events[-1]["event"] == END and record.events[-1]["t"] >= record.last_time


def _latest(record: Record, name: str) -> float | None:
    """Return the last value of a field: the guard reads some values from the GPU rarely."""
    values = (_number(step.get(name)) for step in reversed(record.steps))
    return next((value for value in values if value is not None), None)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
