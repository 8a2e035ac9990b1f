"""The schedule: three steps of the predicted length, whose last one has the operations."""

from __future__ import annotations

import itertools

import pytest

from oomph.prediction.timeline._schedule import event_seconds, schedule
from oomph.trace import Phase

from .traced_jobs import JOBS, predicted


@pytest.mark.medium
@pytest.mark.parametrize("name", JOBS)
def test_spans_follow_each_other_for_three_steps(name: str) -> None:
    trace, settings, target, prediction = predicted(name, "expandable")
    spans = schedule(trace, settings, target)
    for span, after in itertools.pairwise(spans):
        assert after.start == pytest.approx(span.start + span.seconds)
        assert after.first_event >= span.first_event
    seconds = [sum(span.seconds for span in spans if span.step == step) for step in range(3)]
    assert seconds == pytest.approx([prediction.seconds.value] * 3)
    assert [span.cost for span in spans if span.step == 2] == list(trace.op_costs)
    assert all(span.cost is None for span in spans if span.step < 2)


def test_micro_batches_share_the_time_of_a_phase() -> None:
    trace, settings, target, _ = predicted("adamw-accumulate", "expandable")
    first = [span for span in schedule(trace, settings, target) if span.step == 0]
    assert [span.phase for span in first] == [*[Phase.FORWARD, Phase.BACKWARD] * 4, Phase.OPTIMIZER]
    forward = [span.seconds for span in first if span.phase is Phase.FORWARD]
    assert max(forward) < 1.2 * min(forward)


def test_events_happen_while_their_operation_runs() -> None:
    trace, settings, target, _ = predicted("sgd", "default")
    spans = schedule(trace, settings, target)
    times = event_seconds(trace, spans)
    assert times == sorted(times)
    assert len(times) == trace.training_events
    for span, after in itertools.pairwise(spans):
        for event in range(span.first_event, after.first_event):
            assert span.start <= times[event] < span.start + span.seconds
