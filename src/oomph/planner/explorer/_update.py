"""Predictions of the optimizer's update, which doesn't depend on samples and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...job import Job
from ...machine import Target
from ...prediction import device_seconds, launch_seconds, trace_device
from ...settings import Settings
from ...trace import Phase, StorageKind, trace_step
from ._family import need_of
from ._table import Need


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
        need: memory of the step.
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
        need=need_of(trace, request.settings, request.target),
        states=sum(first_states),
        seconds={
            (target.name, precision): device_seconds(costs, target, replace(request.settings, precision=precision))
            for target, precision in request.timed
        },
        launching=launch_seconds(costs),
    )
