"""Diagnosis of how a run ended: regularly, with an error, or without a message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ...failures import CAUSES, FailureKind, Family, Finding, measured_finding, read_log
from ...units import format_size
from .._record import Fields, Record
from .._samples import format_clock, host_use

# At this use of RAM or the cgroup, the kernel may kill a process before the next sample.
_MIN_KILL_FRACTION = 0.92
_LAST_SAMPLES = 5
_END_OF_COMMAND = re.compile(r"exit code \d+|signal \d+|SIG[A-Z0-9]+")  # what `oomph run` writes
_MAX_EVIDENCE = 400  # characters


def exit_cause(record: Record) -> Iterator[Finding]:
    """Report the error that ended the run, or the likely cause of an end without an error."""
    for event in record.events:
        if event["event"] == "error" and event["t"] >= record.start_times[-1]:
            finding = _classify_error(event)
            if finding is not None:
                yield finding
            return
    if record.has_ended or record.is_running:
        return
    evidence = f"The Record stops at {format_clock(record.last_time)}."
    unexpected_end = measured_finding(
        FailureKind.UNEXPECTED_END, evidence, {"at": record.last_time}, time=record.last_time
    )
    yield _oom_kill(record) or unexpected_end


def unknown_error(record: Record) -> str | None:
    """Return the error that ended the run if nothing is known about it, such as the exit code of a command."""
    for event in record.events:
        if event["event"] == "error" and event["t"] >= record.start_times[-1]:
            text = str(event.get("text") or "") or f"The command ended with {event.get('error')}."
            return text if _classify_error(event) is None else None
    return None


def _classify_error(event: Fields) -> Finding | None:
    """Return the finding of an error; None for a foreign command's end that says nothing."""
    text = f"{event.get('error', 'Error')}: {event.get('text', '')}"
    kind = {kind.value: kind for kind in FailureKind}.get(str(event.get("kind")))
    findings = read_log(text)
    if findings and kind in {None, findings[0].kind}:
        return replace(findings[0], time=event["t"])
    if kind is None and _END_OF_COMMAND.fullmatch(str(event.get("error"))):
        return None
    kind = kind or FailureKind.PYTHON_ERROR
    return measured_finding(kind, text[:_MAX_EVIDENCE], {}, time=event["t"])


def _oom_kill(record: Record) -> Finding | None:
    """Return a kill by the kernel if host memory was nearly full at the end."""
    fullest = max(record.samples[-_LAST_SAMPLES:], key=lambda sample: host_use(sample).fraction, default=None)
    if fullest is None:
        return None
    use = host_use(fullest)
    if use.fraction < _MIN_KILL_FRACTION:
        return None
    evidence = (
        f"The Record stops at {format_clock(record.last_time)}, with {format_size(use.used)} of "
        f"{format_size(use.limit)} in use ({use.name})."
    )
    details = ["The run wrote no error. With memory this full, the kernel most likely killed it."]
    rss = fullest.get("rss")
    if rss is not None:
        details.append(f"This run used {format_size(rss)} of it.")
    numbers = {"at": record.last_time, "used": use.used, "limit": use.limit}
    return measured_finding(FailureKind.OOM_KILL, evidence, numbers, *details, time=record.last_time)


def ran_out_of_device_memory(record: Record) -> bool:
    """Return True if the run had an out-of-memory error of the device, even if it survived."""
    device_kinds = {kind.value for kind in FailureKind if CAUSES[kind].family is Family.DEVICE}
    return any(event.get("kind") in device_kinds or event["event"] == "oom" for event in record.events)
