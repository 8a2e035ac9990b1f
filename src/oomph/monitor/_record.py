"""Reading of Records, also of a run that was killed and left a truncated last line."""

from __future__ import annotations

import io
import itertools
import json
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from ..display import HtmlRepr
from ..errors import InvalidFile, MissingFile, shorten
from ._recorder import END, KIND, VERSION, is_header

Fields = Mapping[str, Any]

_NON_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_MAX_TIMESTAMP, _MAX_NUMBER = 1e11, 1e18


@dataclass(frozen=True)
class Record(HtmlRepr):
    """The measurements and events of a run.

    Attributes:
        header: The last header line: `pid`, `host`, `system`, `start_time` and so on.
        samples: The samples, each with its time `t` in seconds since 1970.
        steps: The training steps, with `t`.
        events: The events, with `t` and `event`.
        start_times: When the run was started; more than one time if it was resumed.
        damaged_lines: Number of lines that could not be read.
    """

    header: Fields
    samples: tuple[Fields, ...]
    steps: tuple[Fields, ...]
    events: tuple[Fields, ...]
    start_times: tuple[float, ...]
    damaged_lines: int = 0

    @classmethod
    def load(cls, path: str | Path) -> Record:
        """Load a Record from a file: `oomph.Record.load("run.jsonl")`."""
        return load_record(path)

    @property
    def last_time(self) -> float:
        """The time of the last line."""
        times = [group[-1]["t"] for group in (self.samples, self.steps, self.events) if group]
        return float(max([*times, self.start_times[-1]]))

    @property
    def is_running(self) -> bool:
        """True if the process that writes it is alive on this machine."""
        if self.header.get("host") != socket.gethostname():
            return False
        try:
            process = psutil.Process(int(self.header["pid"]))
            # Another process may have the same pid meanwhile.
            is_same = abs(process.create_time() - float(self.header["process_start_time"])) < 1
            return is_same and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, KeyError, TypeError, ValueError, OverflowError):
            return False

    @property
    def has_ended(self) -> bool:
        """True if the run wrote its end after its last start."""
        return any(event["event"] == END and event["t"] >= self.start_times[-1] for event in self.events)


def load_record(path: str | Path) -> Record:
    """Load a Record, as far as it was written.

    Raises:
        MissingFile: The file doesn't exist.
        InvalidFile: The file is not a Record, or has another version.
    """
    name = shorten(str(path))
    try:
        with Path(path).open("rb") as file:  # line by line: a day of samples has hundreds of megabytes
            return _parse_lines(file, str(path))
    except FileNotFoundError:
        raise MissingFile(f"there is no file {name!r}", "check the path") from None
    except OSError as error:
        raise InvalidFile(f"{name!r} can't be read ({error.strerror})", "name a Record") from None


def parse_record(data: bytes, name: str) -> Record:
    """Parse the bytes of a Record.

    Raises:
        InvalidFile: The data is not a Record, or has another version.
    """
    return _parse_lines(io.BytesIO(data), name)


def _parse_lines(file: BinaryIO, name: str) -> Record:
    first_line = file.readline()
    if not is_header(first_line):
        raise InvalidFile(f"{shorten(name)!r} is not a Record", "name a file that oomph.watch or oomph.guard wrote")
    lines: dict[str, list[Fields]] = {"header": [], "sample": [], "step": [], "event": []}
    damaged = 0
    for line in itertools.chain([first_line], file):
        parsed = _parse_line(line) if line.endswith(b"\n") else None  # a line without an end is truncated
        if parsed is not None:
            lines[parsed[0]].append(parsed[1])
        elif line.strip():
            damaged += 1
    headers = lines["header"]
    if headers[-1]["version"] != VERSION:
        version = shorten(str(headers[-1]["version"]))
        raise InvalidFile(
            f"{shorten(name)!r} has version {version}, and this oomph reads version {VERSION}",
            "read it with the oomph that wrote it",
        )
    return Record(
        header=headers[-1],
        samples=tuple(lines["sample"]),
        steps=tuple(lines["step"]),
        events=tuple(lines["event"]),
        start_times=tuple(float(header["start_time"]) for header in headers),
        damaged_lines=damaged,
    )


def _parse_line(line: bytes) -> tuple[str, Fields] | None:
    """Return the type and the fields of a line, or None if it is truncated or damaged."""
    try:
        data = json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    if data.get("oomph") == KIND:
        return ("header", data) if _is_number(data.get("start_time"), _MAX_TIMESTAMP) and "version" in data else None
    if not _is_number(data.get("t"), _MAX_TIMESTAMP):
        return None
    for kind, parse in (("sample", _valid_sample_fields), ("step", _parse_step_fields)):
        if isinstance(data.get(kind), dict):
            return kind, {**dict(parse(data[kind])), "t": data["t"]}
    return ("event", data) if isinstance(data.get("event"), str) else None


_REQUIRED_FIELDS = {
    "gpus": ("index", "total", "free"),
    "torch": ("device", "allocated", "peak", "reserved", "alloc_retries"),
}


def _valid_sample_fields(fields: Fields) -> Iterator[tuple[str, Any]]:
    """Yield the valid fields of a sample: the file may have been written by another program.

    Names are interned: without that, each line has its own copies, which are a third of a long Record's memory.
    """
    for name, value in ((sys.intern(name), value) for name, value in fields.items()):
        if name in _REQUIRED_FIELDS:
            entries = value if isinstance(value, list) else []
            yield name, tuple(_interned(entry) for entry in entries if _is_valid_entry(entry, _REQUIRED_FIELDS[name]))
        elif _is_number(value, _MAX_NUMBER) and value >= 0:
            yield name, value


def _interned(entry: Fields) -> Fields:
    return {sys.intern(name): sys.intern(value) if isinstance(value, str) else value for name, value in entry.items()}


def _is_valid_entry(entry: object, required: tuple[str, ...]) -> bool:
    if not isinstance(entry, dict) or not all(name in entry for name in required):
        return False
    numbers = [value for name, value in entry.items() if name != "name"]
    return all(_is_number(value, _MAX_NUMBER) and value >= 0 for value in numbers) and entry.get("total", 1) > 0


def _parse_step_fields(fields: Fields) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a step; NaN and infinity, which JSON doesn't have, are stored as text."""
    for name, value in fields.items():
        yield sys.intern(name), _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _is_number(value: object, maximum: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < maximum


def _reject_constant(name: str) -> None:
    raise ValueError(name)
