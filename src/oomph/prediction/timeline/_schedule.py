"""When the phases and operations of the traced steps run, by the predicted step time.

Costs are known for the operations of the last step. Earlier steps take as long, and so do their phases.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ...machine import Target
from ...settings import Settings
from ...trace import OpCost, Phase, Trace
from .._step_time import op_seconds

_TRAINING = {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}


@dataclass(frozen=True)
class Span:
    """A phase of an early step, or an operation of the last one.

    Attributes:
        step: the training step, starting at 0.
        phase: the phase of training.
        first_event: number of events in the trace before it.
        start: seconds after the start of the first step.
        seconds: how long it takes.
        cost: the operation; None for a phase.
    """

    step: int
    phase: Phase
    first_event: int
    start: float
    seconds: float
    cost: OpCost | None = None


def schedule(trace: Trace, settings: Settings, target: Target) -> tuple[Span, ...]:
    """Return the phases of the early steps and the operations of the last one, in order."""
    seconds = op_seconds(trace, target, settings)
    totals: dict[Phase, float] = defaultdict(float)
    for cost, duration in zip(trace.op_costs, seconds, strict=True):
        totals[cost.phase] += duration
    spans: list[Span] = []
    now = 0.0
    starts = [start for start in trace.phase_starts if start[2] in _TRAINING]
    last_step = max(step for _, step, _ in starts)
    for (event, step, phase), share in zip(starts, _shares(trace, starts), strict=True):
        if step < last_step and share:
            spans.append(Span(step, phase, event, now, share * totals[phase]))
            now += share * totals[phase]
    for cost, event, duration in zip(trace.op_costs, trace.op_starts, seconds, strict=True):
        spans.append(Span(last_step, cost.phase, event, now, duration, cost))
        now += duration
    return tuple(spans)


def _shares(trace: Trace, starts: Sequence[tuple[int, int, Phase]]) -> list[float]:
    """Return the part of its step's forward, backward or update that runs from each start on, by its events."""
    ends = [*(event for event, _, _ in starts[1:]), trace.training_events]
    counts = [end - event for (event, _, _), end in zip(starts, ends, strict=True)]
    totals: Counter[tuple[int, Phase]] = Counter()
    occurrences: Counter[tuple[int, Phase]] = Counter()
    for (_, step, phase), count in zip(starts, counts, strict=True):
        totals[step, phase] += count
        occurrences[step, phase] += 1
    return [  # a fused update allocates nothing
        count / totals[step, phase] if totals[step, phase] else 1 / occurrences[step, phase]
        for (_, step, phase), count in zip(starts, counts, strict=True)
    ]


def event_seconds(trace: Trace, spans: Sequence[Span]) -> list[float]:
    """Return when each event of the training steps happens; those within a span are spread evenly over it."""
    first_events = [span.first_event for span in spans]
    ends = [*first_events[1:], trace.training_events]
    times = []
    for event in range(trace.training_events):
        index = bisect_right(first_events, event) - 1
        if index < 0:
            times.append(0.0)  # the model is built before the first step
            continue
        span = spans[index]
        times.append(span.start + span.seconds * (event - span.first_event) / (ends[index] - span.first_event))
    return times
