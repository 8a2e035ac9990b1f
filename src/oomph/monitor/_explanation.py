"""Explanation of a log, a traceback or a Record: what happened, why, and what to do."""

from __future__ import annotations

import codecs
import io
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from ..display import HtmlRepr
from ..errors import InvalidFile, MissingFile, shorten
from ..failures import Family, Finding, LogScanner
from ..units import MIB, format_size
from ._record import Record, parse_record
from ._recorder import is_header
from ._samples import allocator_stats, format_clock, host_use
from .diagnosis import diagnose_record, unknown_error

_MAX_PATH = 4096
_RECORD_OF_RUN = "record.jsonl"  # in the folder of a run
_CHUNK_BYTES = MIB
_MIN_HEAD_BYTES = 4096  # that tell a Record from a log, and the encoding of the log
# Of a huge Record, only the head and a number of chunks at the end are read, to limit memory and time.
_RECORD_HEAD_BYTES, _RECORD_TAIL_CHUNKS = 8 * MIB, 512
_BYTE_ORDER_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


@dataclass(frozen=True)
class Explanation(HtmlRepr):
    """The findings in a log or Record.

    Attributes:
        source: "log" or "record".
        findings: The recognized failures, most important first.
        facts: Sentences about a Record.
        unrecognized: The last error of a log without a recognized failure, or the one after all of them.
        has_text: False for a log that is empty or binary data.
        has_finished: True if a line of a log says that the run has finished.
        has_failed: True if it is known that the run has failed, whatever its log says.
    """

    source: str
    findings: tuple[Finding, ...]
    facts: tuple[str, ...] = ()
    unrecognized: str | None = None
    has_text: bool = True
    has_finished: bool = False
    has_failed: bool = False

    @property
    def failure(self) -> Finding | None:
        """The first finding, unless the run survived it."""
        first = next(iter(self.findings), None)
        return None if first is None or first.was_survived else first

    @property
    def verdict(self) -> str:
        """The result in a word or two.

        "memory", "numerics" or "not memory" is what the first finding is about. Without findings, or if the run
        survived all of them, it is "no error"; or "unknown" if there is an error that oomph doesn't know, no text, or
        binary data.
        """
        if self.failure is None:
            is_healthy = self.unrecognized is None and self.has_text and not self.has_failed
            return "no error" if is_healthy else "unknown"
        cause = self.failure.cause
        if cause.family is Family.NUMERICS:
            return "numerics"
        return "memory" if cause.is_memory else "not memory"


def explain(source: str | PathLike[str]) -> Explanation:
    """Explain a log, a traceback or a Record, given as its text or as the path of a file.

    Raises:
        MissingFile: The file doesn't exist.
        InvalidFile: The file can't be read.
    """
    if isinstance(source, str) and not _is_file(source):
        explanation = explain_stream(io.BytesIO(source.encode("utf-8", "replace")), "the text")
        # A single word without a recognized failure was meant as a path.
        if not explanation.findings and source.strip() and len(source.split()) == 1:
            raise MissingFile(f"there is no file {shorten(source)!r}", "check the path")
        return explanation
    path = Path(source)
    if _is_file(str(path / _RECORD_OF_RUN)):  # the folder of a run
        path /= _RECORD_OF_RUN
    name = shorten(str(path))
    try:
        with path.open("rb") as file:
            return explain_stream(file, str(path))
    except FileNotFoundError:
        raise MissingFile(f"there is no file {name!r}", "check the path") from None
    except OSError as error:
        raise InvalidFile(f"{name!r} can't be read ({error.strerror})", "name a log or a Record") from None


def explain_stream(stream: BinaryIO, name: str) -> Explanation:
    """Explain a file or pipe of any size.

    Raises:
        InvalidFile: It is a Record of another version.
    """
    head = b""
    while len(head) < _MIN_HEAD_BYTES and (chunk := stream.read(_CHUNK_BYTES)):
        head += chunk
    if is_header(head.partition(b"\n")[0]):
        return _explain_record_stream(head, stream, name)
    scanner = LogScanner()
    for chunk in _to_utf8(head, iter(partial(stream.read, _CHUNK_BYTES), b"")):
        scanner.feed(chunk)
    log = scanner.finish()
    unrecognized = log.unknown_end if log.findings else log.last_error
    return Explanation(
        "log", log.findings, unrecognized=unrecognized, has_text=log.is_text, has_finished=log.has_finished
    )


def _explain_record_stream(head: bytes, stream: BinaryIO, name: str) -> Explanation:
    """Explain a Record; of a huge one, only its beginning and its end are read."""
    head += stream.read(_RECORD_HEAD_BYTES)
    tail, skipped = deque[bytes](), 0
    while chunk := stream.read(_CHUNK_BYTES):
        tail.append(chunk)
        if len(tail) > _RECORD_TAIL_CHUNKS:
            skipped += len(tail.popleft())
    if skipped:
        # The lines at both sides of the gap are incomplete.
        tail[0] = b"\n" + tail[0].partition(b"\n")[2]
        head = head.rpartition(b"\n")[0] or head
    explanation = explain_record(parse_record(b"".join((head, *tail)), name))
    if not skipped:
        return explanation
    note = f"{format_size(skipped)} in the middle of {shorten(name)} was not read."
    return replace(explanation, facts=(*explanation.facts, note))


def _is_file(text: str) -> bool:
    try:
        return 0 < len(text) < _MAX_PATH and "\n" not in text and Path(text).exists()
    except (OSError, ValueError):
        return False


def explain_record(record: Record) -> Explanation:
    """Explain a Record that was loaded."""
    unknown = unknown_error(record)
    return Explanation(
        "record",
        diagnose_record(record),
        tuple(_record_facts(record)),
        unrecognized=unknown,
        has_failed=unknown is not None,
    )


def _to_utf8(head: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a log as UTF-8: PowerShell writes UTF-16, terminals write any bytes."""
    encoding = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if head.startswith(mark)), None)
    if encoding is None and head[1:200:2].count(0) > len(head[1:200:2]) // 2:
        encoding = "utf-16-le"
    if encoding is None:
        yield from chain([head], chunks)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in chain([head], chunks):
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def _record_facts(record: Record) -> Iterator[str]:
    duration = _format_duration(record.last_time - record.start_times[0])
    state = (
        "is still being written"
        if record.is_running
        else "has a regular end"
        if record.has_ended
        else "stops without an end"
    )
    yield (
        f"The Record covers {duration} until {format_clock(record.last_time)}, with {len(record.steps)} steps and "
        f"{len(record.samples)} samples, and {state}."
    )
    if len(record.start_times) > 1:
        yield f"The run was resumed {len(record.start_times) - 1} times."
    if record.samples:
        use = max(map(host_use, record.samples))
        if use.limit:
            sizes = f"{format_size(use.used)} of {format_size(use.limit)} ({use.name})"
            yield f"Host memory was at most {use.fraction:.0%} full: {sizes}."
        yield from _peak_facts(record)
    yield from _prediction_facts(record)


def _peak_facts(record: Record) -> Iterator[str]:
    if sizes := [sample["rss"] for sample in record.samples if "rss" in sample]:
        count = max(sample.get("children", 0) for sample in record.samples)
        children = f", with up to {count} child processes" if count else ""
        yield f"The run used at most {format_size(max(sizes))} of RAM{children}."
    peaks: dict[int, tuple[float, float]] = {}
    for gpu in (gpu for sample in record.samples for gpu in sample.get("gpus", ())):
        peaks[gpu["index"]] = max(peaks.get(gpu["index"], (0, 0)), (gpu["total"] - gpu["free"], gpu["total"]))
    for index, (used, total) in sorted(peaks.items()):
        yield f"GPU {index} was at most {used / total:.0%} full: {format_size(used)} of {format_size(total)}."


def _prediction_facts(record: Record) -> Iterator[str]:
    """Compare predicted and measured memory, if the run wrote a prediction."""
    prediction = next((event for event in reversed(record.events) if event["event"] == "prediction"), {})
    allocator = list(allocator_stats(record.samples))
    # On the CPU, a step's peak is the RSS of the process.
    compared = (
        (("host", "peak"),) if prediction.get("target") == "cpu" else (("allocated", "peak"), ("reserved", "reserved"))
    )
    for name, field in compared:
        predicted = prediction.get(name)
        steps = [step[field] for step in record.steps if field in step]
        measured = max([*(stats[field] for stats in allocator), *steps], default=None)
        if isinstance(predicted, (int, float)) and predicted > 0 and measured is not None:
            difference = (measured - predicted) / predicted
            yield f"Predicted {name}: {format_size(predicted)}; measured: {format_size(measured)} ({difference:+.1%})."


def _format_duration(seconds: float) -> str:
    hours, rest = divmod(max(int(seconds), 0), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
