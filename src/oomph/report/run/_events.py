"""What happened in a run, with its time: retries, out-of-memory errors, stops, resumes, findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...units import count_of
from ._chart import Event
from ._run_data import RankRecord, RunData
from ._series import finite

_MAX_EVENTS = 300


def run_events(run: RunData) -> tuple[Event, ...]:
    """Return the events of a run in the order of their times; of too many retries only the first ones."""
    several = len(run.ranks) > 1
    notable: list[Event] = []
    retries: list[Event] = []
    for rank in run.ranks:
        suffix = f" on rank {rank.rank}" if several else ""
        notable += _stops_and_errors(run, rank, suffix)
        retries += _retries(run, rank, suffix)
    notable += _findings(run)
    retries = retries[: max(_MAX_EVENTS - len(notable), 0)]
    return tuple(sorted([*notable[:_MAX_EVENTS], *retries], key=lambda event: event.time))


def events_of(runs: Sequence[RunData]) -> tuple[Event, ...]:
    """Return the events of all runs; with several runs, each with the name of its run."""
    if len(runs) == 1:
        return run_events(runs[0])
    named = [Event(event.time, f"{run.name}: {event.label}", event.text) for run in runs for event in run_events(run)]
    return tuple(sorted(named, key=lambda event: event.time)[:_MAX_EVENTS])


def _stops_and_errors(run: RunData, rank: RankRecord, suffix: str) -> Iterator[Event]:
    for start in rank.record.start_times[1:]:
        yield Event(start - run.start, f"resumed{suffix}", "The run was started again from its last checkpoint.")
    for event in rank.record.events:
        text = _describe(event)
        if text is not None:
            yield Event(float(event["t"]) - run.start, f"{event['event']}{suffix}", text)


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
            text = f"{finding.cause.title}. {finding.evidence}"
            yield Event(finding.time - run.start, f"{finding.kind.value}{suffix}", text)
