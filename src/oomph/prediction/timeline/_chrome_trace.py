"""The predicted timeline as trace events, the JSON that Perfetto and Chrome's tracing page read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...machine import Target
from ...settings import Settings, parse_allocator
from ...trace import Trace
from .._names import module_name, op_name
from ._allocator_history import allocator_history
from ._schedule import Span, event_seconds, schedule

_PROCESS, _THREAD = 1, 1
_IDS = {"pid": _PROCESS, "tid": _THREAD}


def chrome_trace(trace: Trace, settings: Settings, target: Target) -> dict[str, Any]:
    """Return counters of memory, and slices of steps, phases, modules and operations, in the order of time."""
    spans = schedule(trace, settings, target)
    events = [*_slices(spans, dict(trace.module_classes)), *_counters(trace, settings, spans)]
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [
            {"ph": "M", "name": "process_name", **_IDS, "args": {"name": f"oomph, predicted for {target.name}"}},
            {"ph": "M", "name": "thread_name", **_IDS, "args": {"name": "training steps"}},
            *sorted(events, key=lambda event: (event["ts"], -event.get("dur", 0.0))),
        ],
    }


def _counters(trace: Trace, settings: Settings, spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    seconds = event_seconds(trace, spans)
    before = {"allocated": -1, "reserved": -1}
    for action in allocator_history(trace, parse_allocator(settings.allocator)).actions:
        for name, size in (("allocated", action.allocated), ("reserved", action.reserved)):
            if size != before[name]:
                before[name] = size
                time = _microseconds(seconds[action.event])
                yield {"ph": "C", "name": name, "pid": _PROCESS, "ts": time, "args": {"bytes": size}}


def _slices(spans: Sequence[Span], classes: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield each span as a slice, and around it one for each step, phase and module that it is part of."""
    running: list[tuple[str, float]] = []  # names and starts of the slices around the current span
    end = 0.0
    for span in spans:
        path = _path(span, classes)
        shared = _shared_length(path, [name for name, _ in running])
        for name, start in running[shared:]:
            yield _slice(name, start, end)
        running[shared:] = [(name, span.start) for name in path[shared:]]
        end = span.start + span.seconds
        yield _slice(_name(span), span.start, end, _arguments(span))
    for name, start in running:
        yield _slice(name, start, end)


def _slice(name: str, start: float, end: float, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    # Both ends are rounded to nanoseconds, so that a slice never ends after the one around it.
    begin, duration = _microseconds(start), round(_microseconds(end) - _microseconds(start), 3)
    return {"ph": "X", "name": name, "cat": "predicted", **_IDS, "ts": begin, "dur": duration, "args": arguments or {}}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _path(span: Span, classes: Mapping[str, str]) -> list[str]:
    """Return the names of the slices around a span, outermost first."""
    path = [f"step {span.step + 1}"]
    if span.cost is None:
        return path
    parts = span.cost.module.split(".") if span.cost.module else []
    modules = [".".join(parts[: count + 1]) for count in range(len(parts))]
    return [*path, span.phase.value, *(module_name(module, classes) for module in modules)]


def _shared_length(path: Sequence[str], other: Sequence[str]) -> int:
    """Return how many names at the start of both are equal."""
    length = 0
    while length < min(len(path), len(other)) and path[length] == other[length]:
        length += 1
    return length


def _name(span: Span) -> str:
    return span.phase.value if span.cost is None else op_name(span.cost.op)


def _arguments(span: Span) -> dict[str, Any]:
    if span.cost is None:
        return {}
    return {"dtype": span.cost.dtype, "floating-point operations": span.cost.flops, "bytes moved": span.cost.traffic}
