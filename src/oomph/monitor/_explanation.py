"""One explanation of a log, a traceback or a Record: what happened, why, what to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from ..errors import InvalidFile, MissingFile
from ..failures import Family, Finding, last_error, read_log
from ..units import MIB, format_size
from ._death import clock, fullness
from ._device import allocators
from ._record import Record, parse_record
from ._recorder import is_head
from ._verdicts import judge

_LONGEST_NAME = 4096
# Nobody should run out of memory, or of patience, by explaining why he did: pieces of a log or a Record that are kept.
_HEAD, _CHUNK = 8 * MIB, MIB
_LOG_TAIL, _RECORD_TAIL = 24, 512
_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


@dataclass(frozen=True)
class Explanation:
    """What happened, as far as it can be told.

    Attributes:
        source: "log" or "record".
        findings: what was recognised, the most important first.
        facts: what a Record shows besides, in sentences.
        unknown: the last error in a log of which nothing was recognised.
    """

    source: str
    findings: tuple[Finding, ...]
    facts: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def verdict(self) -> str:
        """In a word: "memory", "numbers", "not memory" or "nothing recognised"."""
        if not self.findings:
            return "nothing recognised"
        family = self.findings[0].cause.family
        return {Family.OTHER: "not memory", Family.NUMBERS: "numbers"}.get(family, "memory")


def explain(source: str | PathLike[str]) -> Explanation:
    """Explain a log, a traceback or a Record: its text, or the path of a file.

    Raises:
        MissingFile: a path leads nowhere.
        InvalidFile: the file can't be read.
    """
    if isinstance(source, str) and not _is_file(source):
        found = explain_bytes(source.encode("utf-8", "replace"), "the text")
        # One word in which nothing is recognised was meant as a path.
        if not found.findings and source.strip() and len(source.split()) == 1:
            raise MissingFile(f"there is no file {source[:200]!r}", "check the path")
        return found
    path = Path(source)
    try:
        with path.open("rb") as file:
            return explain_stream(file, str(path))
    except FileNotFoundError:
        raise MissingFile(f"there is no file {str(path)[:200]!r}", "check the path") from None
    except OSError as error:
        raise InvalidFile(f"{str(path)[:200]!r} can't be read ({error.strerror})", "name a log or a Record") from None


def explain_stream(stream: BinaryIO, name: str) -> Explanation:
    """Explain what a file or a pipe holds; of something huge, its beginning and its end.

    Raises:
        InvalidFile: it is a Record of another version.
    """
    data, left_out = stream.read(_HEAD), 0
    tail: deque[bytes] = deque()
    most = _RECORD_TAIL if is_head(data.partition(b"\n")[0]) else _LOG_TAIL
    while chunk := stream.read(_CHUNK):
        tail.append(chunk)
        if len(tail) > most:
            left_out += len(tail.popleft())
    if left_out:
        # Where the cut is, no line is whole.
        tail[0] = b"\n" + tail[0].partition(b"\n")[2]
        data = data.rpartition(b"\n")[0] or data
    found = explain_bytes(b"".join((data, *tail)), name)
    note = f"Of {name}, {format_size(left_out)} in the middle was not read."
    return replace(found, facts=(*found.facts, note)) if left_out else found


def _is_file(text: str) -> bool:
    try:
        return 0 < len(text) < _LONGEST_NAME and "\n" not in text and Path(text).exists()
    except (OSError, ValueError):
        return False


def explain_bytes(data: bytes, name: str) -> Explanation:
    """Explain what was read from a file or a pipe.

    Raises:
        InvalidFile: it is a Record of another version.
    """
    if is_head(data.partition(b"\n")[0]):
        record = parse_record(data, name)
        return Explanation("record", judge(record), tuple(_facts(record)))
    text = _decode(data)
    findings = read_log(text)
    return Explanation("log", findings, unknown=None if findings else last_error(text))


def _decode(data: bytes) -> str:
    """The text of a log: PowerShell writes UTF-16, terminals anything at all."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if data[1:200:2].count(0) > len(data[1:200:2]) // 2:
        return data.decode("utf-16-le", "replace")
    return data.decode("utf-8", "replace")


def _facts(record: Record) -> Iterator[str]:
    """What the Record holds, in numbers."""
    seconds = record.last - record.stretches[0]
    state = (
        "is still being written" if record.running else "ended by itself" if record.ended else "stops without an end"
    )
    yield (
        f"The Record covers {_duration(seconds)} to {clock(record.last)} with {len(record.steps)} steps and "
        f"{len(record.samples)} samples, and {state}."
    )
    if len(record.stretches) > 1:
        yield f"The run was resumed {len(record.stretches) - 1} times."
    if record.samples:
        share, used, limit, name = max(map(fullness, record.samples))
        if limit:
            yield f"Host memory was at most {share:.0%} full: {format_size(used)} of {format_size(limit)} ({name})."
        yield from _peaks(record)
    yield from _predicted(record)


def _peaks(record: Record) -> Iterator[str]:
    if held := [sample["rss"] for sample in record.samples if "rss" in sample]:
        workers = max(sample.get("workers", 0) for sample in record.samples)
        children = f", with up to {workers} child processes" if workers else ""
        yield f"The run held at most {format_size(max(held))} of RAM{children}."
    used: dict[int, tuple[float, float]] = {}
    for gpu in (gpu for sample in record.samples for gpu in sample.get("gpus", ())):
        used[gpu["index"]] = max(used.get(gpu["index"], (0, 0)), (gpu["total"] - gpu["free"], gpu["total"]))
    for index, (most, total) in sorted(used.items()):
        yield f"GPU {index} was at most {most / total:.0%} full: {format_size(most)} of {format_size(total)}."


def _predicted(record: Record) -> Iterator[str]:
    """Predicted beside measured, where the run wrote what it expected."""
    expected = next((event for event in reversed(record.events) if event["event"] == "prediction"), {})
    found = list(allocators(record.samples))
    for name, field in (("allocated", "peak"), ("reserved", "reserved")):
        predicted = expected.get(name)
        steps = [step[field] for step in record.steps if field in step]
        measured = max([*(one[field] for one in found), *steps], default=None)
        if isinstance(predicted, (int, float)) and predicted > 0 and measured is not None:
            off = (measured - predicted) / predicted
            yield f"Predicted {name}: {format_size(predicted)}; measured: {format_size(measured)} ({off:+.1%})."


def _duration(seconds: float) -> str:
    hours, rest = divmod(max(int(seconds), 0), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
