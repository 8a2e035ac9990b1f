"""How a run ended: by itself, by an error that it could still write, or without a word."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..failures import CAUSES, FailureKind, Family, Finding, find_measured, read_log
from ..units import format_size
from ._record import Fields, Record

# Use of RAM, or of the control group, from which the kernel may kill before the next sample is taken.
_NEAR = 0.92
_LAST = 5  # samples before the end that are looked at


def death(record: Record) -> Iterator[Finding]:
    """The error that ended the run, or what the last samples say about an end without one."""
    for event in record.events:
        if event["event"] == "error" and event["t"] >= record.stretches[-1]:
            yield _error(event)
            return
    if record.ended or record.running:
        return
    yield _killed(record) or find_measured(
        FailureKind.UNCLEAN_END, f"The Record stops at {clock(record.last)}.", {"at": record.last}
    )


def _error(event: Fields) -> Finding:
    text = f"{event.get('error', 'Error')}: {event.get('text', '')}"
    if found := read_log(text):
        return found[0]
    kinds = {kind.value: kind for kind in FailureKind}
    return find_measured(kinds.get(str(event.get("kind")), FailureKind.PYTHON_ERROR), text[:400], {})


def _killed(record: Record) -> Finding | None:
    """A kill for memory, if the memory was nearly full at the end."""
    worst = max(record.samples[-_LAST:], key=lambda sample: fullness(sample)[0], default=None)
    if worst is None:
        return None
    share, used, limit, name = fullness(worst)
    if share < _NEAR:
        return None
    evidence = (
        f"The Record stops at {clock(record.last)}, with {format_size(used)} of {format_size(limit)} of {name} in use."
    )
    held = worst.get("rss")
    likely = "No error was written; with memory this full, a kill by the kernel is the likeliest end."
    detail = (likely,) if held is None else (likely, f"This run held {format_size(held)} of it.")
    return find_measured(FailureKind.HOST_KILL, evidence, {"at": record.last, "used": used, "limit": limit}, *detail)


def fullness(sample: Fields) -> tuple[float, float, float, str]:
    """How full host memory was: the share, bytes in use, the limit, and whose limit it is."""
    found = [(0.0, 0.0, 0.0, "RAM")]
    total, free = sample.get("ram_total"), sample.get("ram_available")
    if total and free is not None:
        found.append(((total - free) / total, total - free, total, "RAM"))
    limit, used = sample.get("group_limit"), sample.get("group_used")
    if limit and used is not None:
        found.append((used / limit, used, limit, "the control group's memory"))
    return max(found)


def clock(seconds: float) -> str:
    """The time of day, here."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def was_out_of_device_memory(record: Record) -> bool:
    """Whether the device ran out in this run, survived or not."""
    names = {kind.value for kind in FailureKind if CAUSES[kind].family is Family.DEVICE}
    return any(event.get("kind") in names or event["event"] == "oom" for event in record.events)
