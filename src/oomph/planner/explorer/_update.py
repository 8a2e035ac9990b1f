"""Times of the optimizer's update, which don't depend on samples and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...job import Job
from ...machine import Target
from ...prediction import device_seconds, launch_seconds, trace_device
from ...settings import Settings
from ...trace import Phase, trace_step


@dataclass(frozen=True)
class UpdateRequest:
    """An update whose time is estimated.

    Attributes:
        settings: a step that is as small as possible.
        target: where it is traced.
        timed: the targets and precisions.
    """

    settings: Settings
    target: Target
    timed: tuple[tuple[Target, str], ...]


@dataclass(frozen=True)
class UpdateTimes:
    """Seconds of an update on the device, by target and precision, and seconds to launch it."""

    running: Mapping[tuple[str, str], float]
    launching: float


def time_update(job: Job, request: UpdateRequest) -> UpdateTimes:
    """Trace whole steps: the first update creates states, and only later ones are typical.

    Raises:
        UsageError: the Job's optimizer can't have this implementation.
    """
    trace = trace_step(job, request.settings, trace_device(request.target))
    costs = [cost for cost in trace.op_costs if cost.phase is Phase.OPTIMIZER]
    return UpdateTimes(
        running={
            (target.name, precision): device_seconds(costs, target, replace(request.settings, precision=precision))
            for target, precision in request.timed
        },
        launching=launch_seconds(costs),
    )
