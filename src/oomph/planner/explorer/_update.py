"""Predictions of the optimizer's update, which doesn't depend on samples and size."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...job import Job
from ...machine import Target
from ...prediction import device_seconds, launch_seconds, trace_device
from ...settings import Settings
from ...trace import Phase, StorageKind, Trace, trace_step
from ._family import need_of
from ._table import Need

_PASSES = {Phase.FORWARD, Phase.BACKWARD}


@dataclass(frozen=True)
class UpdateRequest:
    """An update to predict.

    Attributes:
        settings: a step that is as small as possible.
        target: where memory is predicted.
        timed: the targets and precisions whose time is estimated.
    """

    settings: Settings
    target: Target
    timed: tuple[tuple[Target, str], ...]


@dataclass(frozen=True)
class PredictedUpdate:
    """An update.

    Attributes:
        need: memory of the weights, the gradients and the update, without what passes leave in the allocator's cache.
        states: bytes of optimizer state.
        seconds: seconds of the update on the device, by target and precision.
        launching: seconds to launch it.
    """

    need: Need
    states: int
    seconds: Mapping[tuple[str, str], float]
    launching: float


def predict_update(job: Job, request: UpdateRequest) -> PredictedUpdate:
    """Trace whole steps: the first update creates states, and only later ones are typical.

    Raises:
        UsageError: the Job's optimizer can't have this implementation.
    """
    trace = trace_step(job, request.settings, trace_device(request.target))
    costs = [cost for cost in trace.op_costs if cost.phase is Phase.OPTIMIZER]
    first_states = (s.size for s in trace.storages if s.kind is StorageKind.STATE and s.step == 0)
    return PredictedUpdate(
        need=need_of(_without_passes(trace), request.settings, request.target),
        states=sum(first_states),
        seconds={
            (target.name, precision): device_seconds(costs, target, replace(request.settings, precision=precision))
            for target, precision in request.timed
        },
        launching=launch_seconds(costs),
    )


def _without_passes(trace: Trace) -> Trace:
    """Return a trace without what forward and backward allocate for themselves."""
    freed = {-event for event in trace.events if event < 0}
    of_passes = {
        number
        for number, storage in enumerate(trace.storages, 1)
        if storage.phase in _PASSES and storage.kind is not StorageKind.GRADIENT and number in freed
    }
    kept = [abs(event) not in of_passes for event in trace.events]
    before = [0, *itertools.accumulate(kept)]
    return replace(
        trace,
        events=tuple(itertools.compress(trace.events, kept)),
        phase_starts=tuple((before[start], step, phase) for start, step, phase in trace.phase_starts),
        training_events=before[trace.training_events],
    )
