"""From a Job to a Prediction: trace, replay, and what the peak is made of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from ..job import Job
from ..machine import Target, find_target
from ..settings import Settings, parse_allocator
from ..trace import RECURRENT, Device, Host, Phase, Trace, trace_step
from ..units import MIB
from ._allocator import Rules
from ._prediction import Estimate, Origin, Owner, Peak, Prediction
from ._replay import replay, smallest_cap
from ._resident import beside_gpu, resident_growth, whole_process
from ._time import step_seconds

# How far predictions were off on an H200 over 75 configurations, rounded up (benchmarks/results/): 95 of 100 within.
_SPREAD = {"allocated": 0.01, "reserved": 0.04}
_NEEDED_BELOW = 0.85  # two configurations ran with 6 % less than the replay needs, one with 13 % less by earlier rules
_NEEDED_ABOVE = {"expandable": 0.02, "default": 0.045}
_UNMEASURED = 3  # times wider where the rules were not measured on that architecture
# cuDNN's workspace for recurrent layers is an estimate.
_RECURRENT = {"allocated": 0.08, "reserved": 0.18}
_RECURRENT_ABOVE = {"expandable": 0.09, "default": 0.10}
_TIME_SPREAD = 2.0
_BETWEEN = {Phase.VALIDATION, Phase.AVERAGE, Phase.CHECKPOINT}  # what happens between training steps


def predict(job: Job, settings: Settings, target: Target | str) -> Prediction:
    """Predict what a training step needs on a GPU that needn't be there, or on this machine's processor.

    Args:
        job: what is trained.
        settings: how.
        target: on what; a name of the catalog will do: `"H200"`, `"RTX 3060"`, `"p4d.24xlarge"`; or `"cpu"`.

    Raises:
        UsageError: no such GPU, or the Job can't be traced: it raises, or its loss is no scalar.
    """
    where = find_target(target) if isinstance(target, str) else target
    return predict_trace(trace_step(job, settings, device_of(where)), settings, where)


def device_of(target: Target) -> Device | Host:
    """What a trace needs to know about a target."""
    if target.is_cpu:
        return Host()
    return Device(capability=target.capability, processors=target.processors, threads=target.threads)


def predict_trace(trace: Trace, settings: Settings, target: Target) -> Prediction:
    """Predict from a trace that has been made."""
    return _on_cpu(trace, settings, target) if target.is_cpu else _on_gpu(trace, settings, target)


def rules_of(settings: Settings) -> Rules:
    """How the allocator is set up under the settings."""
    knobs = parse_allocator(settings.allocator)
    rules = Rules(expandable=knobs.expandable, non_split_rounding=knobs.non_split_rounding)
    return rules if knobs.max_split is None else replace(rules, max_split=knobs.max_split)


def _on_cpu(trace: Trace, settings: Settings, target: Target) -> Prediction:
    grown = resident_growth(trace)
    process = whole_process(grown)
    return Prediction(
        target=target.name,
        allocated=grown,
        reserved=grown,
        needed=grown,
        full_speed=grown,
        device=process,
        host=process,
        seconds=_seconds(trace, settings, target),
        peak=_peak(trace, _most_alive(trace)),
        phases=_phases(trace),
        assumptions=_assumptions(trace, target),
    )


def _on_gpu(trace: Trace, settings: Settings, target: Target) -> Prediction:
    rules = rules_of(settings)
    free = replay(trace, rules)
    needed = smallest_cap(trace, rules, free)
    spread = _spreads(trace, settings, target)
    high = needed * (1 + spread["needed"]) + 2 * MIB
    full = _spread(max(free.reserved, needed), spread["reserved"], floor=needed)
    low, value, top = target.outside
    return Prediction(
        target=target.name,
        allocated=_spread(free.allocated, spread["allocated"]),
        reserved=_spread(free.reserved, spread["reserved"]),
        needed=Estimate(needed * _NEEDED_BELOW, needed, high, Origin.TRACED),
        full_speed=full,
        device=Estimate(full.low + low, full.value + value, full.high + top, Origin.TRACED),
        host=beside_gpu(trace),
        seconds=_seconds(trace, settings, target),
        peak=_peak(trace, free.at),
        phases=_phases(trace),
        assumptions=_assumptions(trace, target),
    )


def _seconds(trace: Trace, settings: Settings, target: Target) -> Estimate:
    value = step_seconds(trace, target, settings)
    return Estimate(value / _TIME_SPREAD, value, value * _TIME_SPREAD, Origin.ASSUMED)


def _spread(value: float, share: float, floor: float = 0) -> Estimate:
    return Estimate(max(value * (1 - share), floor), value, value * (1 + share), Origin.TRACED)


def _spreads(trace: Trace, settings: Settings, target: Target) -> dict[str, float]:
    """How far each figure may be off, as a share of it."""
    kind = "expandable" if parse_allocator(settings.allocator).expandable else "default"
    usual = {**_SPREAD, "needed": _NEEDED_ABOVE[kind]}
    if RECURRENT in trace.assumptions:
        usual = {**_RECURRENT, "needed": _RECURRENT_ABOVE[kind]}
    return {name: share * (1 if target.measured else _UNMEASURED) for name, share in usual.items()}


def _living(trace: Trace, at: int) -> list[int]:
    alive = set()
    for event in trace.events[: at + 1]:
        if event > 0:
            alive.add(event - 1)
        else:
            alive.discard(-event - 1)
    return sorted(alive)


def _most_alive(trace: Trace) -> int:
    """Index of the event after which most bytes are alive."""
    alive = best = at = 0
    for place, event in enumerate(trace.events[: trace.trained]):
        size = trace.storages[abs(event) - 1].size
        alive += size if event > 0 else -size
        if alive > best:
            best, at = alive, place
    return at


def _peak(trace: Trace, at: int) -> Peak:
    kinds: dict[str, int] = defaultdict(int)
    owners: dict[tuple[str, str], int] = defaultdict(int)
    for index in _living(trace, at):
        storage = trace.storages[index]
        kinds[storage.kind.value] += storage.size
        owners[storage.module, storage.kind.value] += storage.size
    last = trace.storages[trace.events[at] - 1]
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
    """The most that is alive in each phase of the first and of the last step, and in what comes between steps."""
    ends = [*(start for start, _, _ in trace.marks[1:]), len(trace.events)]
    final = max(step for _, step, phase in trace.marks if phase not in _BETWEEN)
    most: dict[str, int] = {}
    alive = 0
    for (start, step, phase), end in zip(trace.marks, ends, strict=True):
        name = phase.value if phase in _BETWEEN else f"{'first' if step == 0 else 'steady'} step, {phase.value}"
        if phase in _BETWEEN:
            most[name] = alive
        for event in trace.events[start:end]:
            size = trace.storages[abs(event) - 1].size
            alive += size if event > 0 else -size
            if step in {0, final} or phase in _BETWEEN:
                most[name] = max(most.get(name, 0), alive)
    return tuple(most.items())


def _assumptions(trace: Trace, target: Target) -> tuple[str, ...]:
    said = list(trace.assumptions)
    if not target.measured and not target.is_cpu:
        said.append(
            f"workspaces on {target.name} follow the rules measured on Hopper (compute capability 9.0): "
            "the ranges are wider"
        )
    if not target.memory_known:
        said.append(f"the memory of {target.name} is the size it is sold with; a driver reports a little less")
    return tuple(said)
