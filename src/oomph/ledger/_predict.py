"""From a Job to a Prediction: trace, replay, and what the peak is made of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from ..job import Job
from ..machine import Target, find_target
from ..settings import Settings
from ..trace import RECURRENT, Device, Trace, trace_step
from ..units import MIB
from ._allocator import Rules
from ._prediction import Origin, Owner, Peak, Prediction, Range
from ._replay import Replay, replay, smallest_cap
from ._time import step_seconds

# How far predictions were off on an H200 over 69 configurations, rounded up (benchmarks/results/): 95 of 100 within.
_SPREAD = {"allocated": 0.01, "reserved": 0.04}
_NEEDED_ABOVE = {"expandable": 0.02, "default": 0.045}
_UNMEASURED = 3  # times wider where the rules were not measured on that architecture
_RECURRENT = {"allocated": 0.08, "reserved": 0.18, "needed": 0.13}  # cuDNN's workspace there is an estimate
_TIME_SPREAD = 2.0


def predict(job: Job, settings: Settings, target: Target | str) -> Prediction:
    """Predict what a training step needs on a GPU that needn't be there.

    Args:
        job: what is trained.
        settings: how.
        target: on what; a name of the catalogue will do: `"H200"`, `"RTX 3060"`, `"p4d.24xlarge"`.

    Raises:
        WrongCall: no such GPU, or the Job can't be traced: it raises, or its loss is no scalar.
    """
    where = find_target(target) if isinstance(target, str) else target
    device = Device(capability=where.capability, processors=where.processors, threads=where.threads)
    return predict_trace(trace_step(job, settings, device), settings, where)


def predict_trace(trace: Trace, settings: Settings, target: Target) -> Prediction:
    """Predict from a trace that has been made."""
    rules = Rules(expandable=settings.allocator == "expandable")
    free = replay(trace, rules)
    needed = smallest_cap(trace, rules, free, at_full_speed=False)
    strict = smallest_cap(_without_options(trace), rules, free, at_full_speed=False)
    comfortable = smallest_cap(trace, rules, free, at_full_speed=True)
    spread = _spreads(trace, settings, target)
    high = needed * (1 + spread["needed"]) + 2 * MIB
    full = _spread(max(comfortable, needed), spread["reserved"], floor=needed)
    low, value, top = target.outside
    seconds = step_seconds(trace, target, settings)
    return Prediction(
        target=target.name,
        allocated=_spread(free.allocated, spread["allocated"]),
        reserved=_spread(free.reserved, spread["reserved"]),
        needed=Range(min(needed, strict) * 0.98, needed, high, Origin.TRACED),
        comfortable=full,
        device=Range(full.low + low, full.value + value, full.high + top, Origin.TRACED),
        seconds=Range(seconds / _TIME_SPREAD, seconds, seconds * _TIME_SPREAD, Origin.ASSUMED),
        peak=_peak(trace, free),
        phases=_phases(trace),
        assumptions=_assumptions(trace, target),
    )


def _spread(value: float, share: float, floor: float = 0) -> Range:
    return Range(max(value * (1 - share), floor), value, value * (1 + share), Origin.TRACED)


def _spreads(trace: Trace, settings: Settings, target: Target) -> dict[str, float]:
    """How far each figure may be off, as a share of it."""
    usual = {**_SPREAD, "needed": _NEEDED_ABOVE[settings.allocator]}
    if RECURRENT in trace.assumptions:
        usual = _RECURRENT
    return {name: share * (1 if target.measured else _UNMEASURED) for name, share in usual.items()}


def _without_options(trace: Trace) -> Trace:
    """The same trace with every workspace insisted on."""
    return replace(trace, storages=tuple(replace(storage, optional=False) for storage in trace.storages))


def _living(trace: Trace, at: int) -> list[int]:
    alive = set()
    for event in trace.events[: at + 1]:
        if event > 0:
            alive.add(event - 1)
        else:
            alive.discard(-event - 1)
    return sorted(alive)


def _peak(trace: Trace, free: Replay) -> Peak:
    kinds: dict[str, int] = defaultdict(int)
    owners: dict[tuple[str, str], int] = defaultdict(int)
    for index in _living(trace, free.at):
        storage = trace.storages[index]
        kinds[storage.kind.value] += storage.size
        owners[storage.module, storage.kind.value] += storage.size
    last = trace.storages[trace.events[free.at] - 1]
    return Peak(
        phase=last.phase.value,
        step=last.step,
        op=last.op.removeprefix("aten.").removesuffix(".default"),
        module=last.module,
        kinds=tuple(sorted(kinds.items(), key=lambda pair: -pair[1])),
        owners=tuple(
            Owner(module, kind, size) for (module, kind), size in sorted(owners.items(), key=lambda pair: -pair[1])
        ),
    )


def _phases(trace: Trace) -> tuple[tuple[str, int], ...]:
    """The most that is alive in each phase of the first and of the last step."""
    ends = [*(start for start, _, _ in trace.marks[1:]), len(trace.events)]
    final = max(step for _, step, _ in trace.marks)
    most: dict[str, int] = {}
    alive = 0
    for (start, step, phase), end in zip(trace.marks, ends, strict=True):
        name = f"{'first' if step == 0 else 'steady'} step, {phase.value}"
        for event in trace.events[start:end]:
            size = trace.storages[abs(event) - 1].size
            alive += size if event > 0 else -size
            if step in {0, final}:
                most[name] = max(most.get(name, 0), alive)
    return tuple(most.items())


def _assumptions(trace: Trace, target: Target) -> tuple[str, ...]:
    said = list(trace.assumptions)
    if not target.measured:
        said.append(
            f"workspaces on {target.name} follow the rules measured on Hopper (compute capability 9.0): "
            "the ranges are wider"
        )
    if not target.memory_known:
        said.append(f"the memory of {target.name} is the size it is sold with; a driver reports a little less")
    return tuple(said)
