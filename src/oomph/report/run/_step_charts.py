"""Charts of training steps over time: duration, waiting for data, micro-batches, and loss where there are no epochs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ._chart import Chart
from ._memory_charts import has_several, prefix, ranks_of, series_of
from ._run_data import RunData
from ._series import Series, finite, points_of

_TIMES = (("seconds", "step"), ("device_seconds", "work of the GPU"), ("wait", "waiting for data"))


def step_charts(runs: Sequence[RunData]) -> Iterator[Chart]:
    """Yield the charts of step time, of the share of waiting, and of micro-batches."""
    times = _TIMES[:1] if has_several(runs) else _TIMES
    yield from _chart(runs, "step-time", "Time of a step", "s", times)
    share = [
        series_of(
            run, rank, f"{prefix(runs, run, rank)}share of waiting", _waiting_shares(rank.record.steps), group=group
        )
        for group, run, rank in ranks_of(runs)
    ]
    waiting = tuple(line for line in share if line is not None)
    if waiting:
        yield Chart("waiting", "Share of time in which steps waited for data", "%", waiting)
    for chart in _chart(runs, "micro-batches", "Micro-batches of a step", "", (("micro_batches", "micro-batches"),)):
        yield replace(chart, stepped=True)


def loss_charts(runs: Sequence[RunData]) -> Iterator[Chart]:
    """Yield the charts of a loop without epochs: loss, norm of the gradients and learning rate of its steps."""
    yield from _chart(runs, "loss", "Loss of a step", "", (("loss", "loss"),))
    yield from _chart(runs, "grad-norm", "Norm of the gradients before clipping", "", (("grad_norm", "norm"),))
    yield from _chart(runs, "lr", "Learning rate", "", (("lr", "learning rate"),))


def _chart(
    runs: Sequence[RunData], name: str, title: str, unit: str, fields: Sequence[tuple[str, str]]
) -> Iterator[Chart]:
    lines: list[Series | None] = []
    several = has_several(runs)
    for group, run, rank in ranks_of(runs):
        for number, (field, label) in enumerate(fields):
            points = points_of(rank.record.steps, field)
            lines.append(
                series_of(run, rank, f"{prefix(runs, run, rank)}{label}", points, group=group if several else number)
            )
    series = tuple(line for line in lines if line is not None)
    if series:
        yield Chart(name, title, unit, series)


def _waits(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, float, float]]:
    """Yield the time of each step whose wait was measured, its seconds of waiting and those of work."""
    for step in steps:
        wait, work = finite(step.get("wait")), finite(step.get("device_seconds", step.get("seconds")))
        if wait is not None and work is not None and wait >= 0 and work >= 0 and 0 < wait + work < math.inf:
            yield float(step["t"]), wait, work


def _waiting_shares(steps: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the times of steps, and the percentage that each one waited for data."""
    shares = [(at, 100 * (wait / (wait + work))) for at, wait, work in _waits(steps)]
    return [at for at, _ in shares], [share for _, share in shares]


def waiting_share(run: RunData) -> float | None:
    """Return the percentage of all steps' time in which they waited for data; None if it wasn't measured."""
    waits = list(_waits(run.record.steps))
    waited, total = sum(wait for _, wait, _ in waits), sum(wait + work for _, wait, work in waits)
    return 100 * (waited / total) if waits else None
