"""The Record as it is read: also from a run that was killed, whose last line may be torn."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ..errors import InvalidFile, MissingFile
from ._recorder import END, KIND, VERSION, is_head

Fields = Mapping[str, Any]

_NUMBERS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@dataclass(frozen=True)
class Record:
    """What really happened in a run.

    Attributes:
        header: the head of the last stretch of the run: `pid`, `host`, `system`, `began` and so on.
        samples: what was measured, each with its time `t` in seconds since 1970.
        steps: what each step did, with `t`.
        events: what happened besides, with `t` and `event`.
        stretches: when each stretch began; more than one if the run was resumed.
        torn: lines that could not be read.
    """

    header: Fields
    samples: tuple[Fields, ...]
    steps: tuple[Fields, ...]
    events: tuple[Fields, ...]
    stretches: tuple[float, ...]
    torn: int = 0

    @classmethod
    def load(cls, path: str | Path) -> Record:
        """Read a Record, as `load_record` does: `oomph.Record.load("run.jsonl")`."""
        return load_record(path)

    @property
    def last(self) -> float:
        """When the last line was written."""
        times = [group[-1]["t"] for group in (self.samples, self.steps, self.events) if group]
        return float(max([*times, self.stretches[-1]]))

    @property
    def running(self) -> bool:
        """Whether the process that wrote it still runs, on this machine."""
        if self.header.get("host") != socket.gethostname():
            return False
        try:
            process = psutil.Process(int(self.header["pid"]))
            # The number may have gone to another process since.
            same = abs(process.create_time() - float(self.header["started"])) < 1
            return same and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, KeyError, TypeError, ValueError, OverflowError):
            return False

    @property
    def ended(self) -> bool:
        """Whether the last stretch ended by itself."""
        return any(event["event"] == END and event["t"] >= self.stretches[-1] for event in self.events)


def load_record(path: str | Path) -> Record:
    """Read a Record, as far as it was written.

    Raises:
        MissingFile: there is no such file.
        InvalidFile: it is no Record, or one of another version.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise MissingFile(f"there is no file {str(path)!r}", "check the path") from None
    except OSError as error:
        raise InvalidFile(f"{str(path)!r} can't be read ({error.strerror})", "name a Record") from None
    return parse_record(data, str(path))


def parse_record(data: bytes, name: str) -> Record:
    """Read a Record from its bytes.

    Raises:
        InvalidFile: it is no Record, or one of another version.
    """
    first, _, _ = data.partition(b"\n")
    if not is_head(first):
        raise InvalidFile(f"{name!r} is no Record", "name a file that oomph.watch or the guard wrote")
    groups: dict[str, list[Fields]] = {"head": [], "sample": [], "step": [], "event": []}
    torn = 0
    for line in data.split(b"\n")[:-1]:
        read = _line(line)
        if read is not None:
            groups[read[0]].append(read[1])
        elif line.strip():
            torn += 1
    heads = groups["head"]
    if heads[-1]["version"] != VERSION:
        raise InvalidFile(
            f"{name!r} has version {str(heads[-1]['version'])[:40]} and this oomph reads version {VERSION}",
            "read it with the oomph that wrote it",
        )
    return Record(
        header=heads[-1],
        samples=tuple(groups["sample"]),
        steps=tuple(groups["step"]),
        events=tuple(groups["event"]),
        stretches=tuple(float(head["began"]) for head in heads),
        torn=torn + bool(data.rpartition(b"\n")[2].strip()),
    )


def _line(line: bytes) -> tuple[str, Fields] | None:
    """What a line is and what it holds; None for one that was cut short or spoilt."""
    try:
        data = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    if data.get("oomph") == KIND:
        return ("head", data) if _is_number(data.get("began")) and "version" in data else None
    if not _is_number(data.get("t")):
        return None
    for kind, sound in (("sample", _sample), ("step", _numbers)):
        if isinstance(data.get(kind), dict):
            return kind, {**dict(sound(data[kind])), "t": data["t"]}
    return ("event", data) if isinstance(data.get("event"), str) else None


_LISTS = {
    "gpus": ("index", "total", "free"),
    "torch": ("device", "allocated", "peak", "reserved", "alloc_retries"),
}


def _sample(fields: Fields) -> Iterator[tuple[str, Any]]:
    """The fields of a sample that have the form they should: a file may have been written by anybody."""
    for name, value in fields.items():
        if name in _LISTS:
            entries = value if isinstance(value, list) else []
            yield name, tuple(entry for entry in entries if _is_entry(entry, _LISTS[name]))
        elif _is_number(value, 1e18) and value >= 0:
            yield name, value


def _is_entry(entry: object, needed: tuple[str, ...]) -> bool:
    if not isinstance(entry, dict) or not all(name in entry for name in needed):
        return False
    numbers = [value for name, value in entry.items() if name != "name"]
    return all(_is_number(value, 1e18) and value >= 0 for value in numbers) and entry.get("total", 1) > 0


def _numbers(fields: Fields) -> Iterator[tuple[str, Any]]:
    """Numbers that JSON doesn't have are written by name."""
    for name, value in fields.items():
        yield name, _NUMBERS.get(value, value) if isinstance(value, str) else value


def _is_number(value: object, below: float = 1e11) -> bool:
    """Whether it is a number; by default one that can be a time."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < below


def _refuse(name: str) -> None:
    raise ValueError(name)
