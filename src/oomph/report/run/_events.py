"""Events of a run, with their times: retries, out-of-memory errors, stops, resumes, findings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...monitor import Record
from ...units import count_of, format_time
from ._chart import Event
from ._run_data import RankRecord, RunData
from ._series import finite

_MAX_EVENTS = 300
END = "end"


def run_events(run: RunData, limit: int = _MAX_EVENTS) -> tuple[Event, ...]:
    """Return the events of a run in the order of their times; of too many retries only the first ones, and a count."""
    several = len(run.ranks) > 1
    notable = list(_findings(run))
    frequent: list[Event] = []
    for rank in run.ranks:
        suffix = f" on rank {rank.rank}" if several else ""
        for event in _recorded_events(run, rank, suffix):
            (frequent if event.label.startswith("oom") else notable).append(event)
        frequent += _retries(run, rank, suffix)
    frequent.sort(key=_time)
    shown, omitted = frequent[:limit], frequent[limit:]
    if omitted:
        text = f"{len(omitted):,} more out-of-memory errors and retries are not listed."
        notable.append(Event(omitted[0].time, "more", text))
    return tuple(sorted([*notable[:limit], *shown], key=_time))


def _time(event: Event) -> float:
    return event.time


def events_of(runs: Sequence[RunData]) -> tuple[Event, ...]:
    """Return the events of all runs; with several runs, each with the name of its run."""
    if len(runs) == 1:
        return run_events(runs[0])
    limit = _MAX_EVENTS // len(runs)
    named = [
        Event(event.time, f"{run.name}: {event.label}", event.text) for run in runs for event in run_events(run, limit)
    ]
    return tuple(sorted(named, key=_time))


def _recorded_events(run: RunData, rank: RankRecord, suffix: str) -> Iterator[Event]:
    for previous, start in itertools.pairwise(rank.record.start_times):
        last = _last_time(rank.record, previous, start)
        if not any(event["event"] == END and previous <= event["t"] < start for event in rank.record.events):
            yield Event(last - run.start, f"killed{suffix}", "The process ended without writing an end.")
        pause = format_time(start - last)
        yield Event(start - run.start, f"resumed{suffix}", f"A new process continued the run after {pause}.")
    for event in rank.record.events:
        text = _describe(event)
        if text is not None:
            yield Event(float(event["t"]) - run.start, f"{event['event']}{suffix}", text)


def _last_time(record: Record, start: float, end: float) -> float:
    """Return the time of the last line of a process that was started and continued at these times."""
    groups = (record.samples, record.steps, record.events)
    return max((float(line["t"]) for group in groups for line in group if start <= line["t"] < end), default=start)


def _describe(event: Mapping[str, Any]) -> str | None:
    name = event["event"]
    if name == "oom":
        parts = event.get("micro_batches")
        count = f", in {count_of(parts, 'micro-batch', 'micro-batches')}" if isinstance(parts, int) else ""
        snapshot = f" Its memory snapshot is {event['snapshot']}." if "snapshot" in event else ""
        kind = event.get("kind", "unknown kind")
        return f"Memory ran out after step {event.get('step', '?')}{count} ({kind}).{snapshot}"
    if name == "stopped":
        return f"The run was asked to stop after step {event.get('step', '?')}, and was saved."
    if name == "error":
        return f"{event.get('error', 'Error')}: {event.get('text', '')}"[:400]
    if name == "sampler-failed":
        return f"Samples are missing: {event.get('error', '')}"[:400]
    return None


def _retries(run: RunData, rank: RankRecord, suffix: str) -> Iterator[Event]:
    for step in rank.record.steps:
        count = int(finite(step.get("retries")) or 0)
        if count <= 0:
            continue
        fallbacks = step.get("fallbacks")
        texts = [str(text) for text in fallbacks] if isinstance(fallbacks, list) else []
        changes = f": {'; '.join(texts)}" if texts else ""
        text = f"Step {step.get('step', '?')} was completed after {count_of(count, 'retry', 'retries')}{changes}."
        yield Event(float(step["t"]) - run.start, f"retry{suffix}", text)


def _findings(run: RunData) -> Iterator[Event]:
    for rank, finding in run.findings:
        suffix = f" on rank {rank}" if len(run.ranks) > 1 else ""
        if finding.time is not None:
            text = f"{finding.title}. {finding.evidence}"
            yield Event(finding.time - run.start, f"{finding.kind.value}{suffix}", text)
