"""Prediction of a Job: trace, replay, composition of the peak."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace

from ..adapters import as_job
from ..job import Job
from ..machine import Target, resolve_target
from ..settings import AllocatorConfig, Settings, parse_allocator
from ..trace import COMPILED, RECURRENT_ESTIMATE, CpuDevice, CudaDevice, Phase, Trace, trace_step
from ..units import MIB
from ._allocator import OutOfMemory
from ._host_memory import cpu_process_rss, gpu_process_rss, rss_growth
from ._names import class_of, op_name
from ._prediction import Estimate, Origin, Owner, Peak, Prediction
from ._replay import Replay, replay, smallest_cap
from ._step_time import step_seconds
from .timeline import TimelineFiles

# Relative errors on an H200 over 75 configurations, 95th percentile, rounded up (benchmarks/results/).
_ERROR = {"allocated": 0.01, "reserved": 0.04}
_NEEDED_LOW = 0.85  # two configurations ran with 6 % less than the replay needs; under earlier rules one with 13 % less
_NEEDED_HIGH = {"expandable": 0.02, "default": 0.045}
# Below what an uncapped run reserves, the default allocator has to return segments and allocate new ones. Whether that
# succeeds differs between processes: one configuration failed 5.7 % above the replay's need and is certain to run at
# 15.5 %, where nothing has to be returned.
_FRAGMENTATION = 0.16
_UNMEASURED_FACTOR = 3  # widens the ranges on architectures where the rules were not measured
_UNMEASURED_RESERVED = 0.15  # covers 63 of 63 public runs on RTX 3060, RTX 4060 and A100 (benchmarks/results/)
# cuDNN's workspace for recurrent layers is an estimate.
_RECURRENT_ERROR = {"allocated": 0.08, "reserved": 0.18}
_RECURRENT_NEEDED_HIGH = {"expandable": 0.09, "default": 0.10}
# Another branch, size or kernel than the traced one may need other memory; how much is unknown.
_GUESS_ERROR = 0.10
_TIME_FACTOR = 2.0
_BETWEEN_STEPS = {Phase.VALIDATION, Phase.AVERAGE, Phase.CHECKPOINT}


def predict(
    job: Job | object,
    settings: Settings | None = None,
    target: Target | str | None = None,
    *,
    snapshot: str | os.PathLike[str] | None = None,
    trace: str | os.PathLike[str] | None = None,
) -> Prediction:
    """Predict memory and time of a training step on a GPU, which need not be present, or on this machine's CPU.

    Args:
        job: what to train: a Job, or the trainer of a framework (docs/integrations.md).
        settings: how to train it; of a framework's trainer, by default as it says itself.
        target: the device, or its name in the catalog: `"H200"`, `"RTX 3060"`, `"p4d.24xlarge"`, `"cpu"`. By default
            this machine's.
        snapshot: write the predicted timeline to this file, as a memory snapshot for torch's tools.
        trace: write the predicted timeline to this file, as trace events for Perfetto and Chrome.

    Raises:
        UsageError: the GPU is unknown, the Job's functions fail, its loss is not a scalar, or a file can't be written.
    """
    job, settings = as_job(job, settings)
    target = resolve_target(target)
    files = TimelineFiles(snapshot, trace)
    files.check(target)
    steps = trace_step(job, settings, trace_device(target), stacks=bool(files))
    files.write(steps, settings, target)
    return predict_trace(steps, settings, target)


def trace_device(target: Target) -> CudaDevice | CpuDevice:
    """Return the device that a trace for this target needs."""
    if target.is_cpu:
        return CpuDevice()
    return CudaDevice(
        capability=target.capability,
        processors=target.processors,
        threads=target.threads,
        cudnn=target.cudnn_number,
    )


def predict_trace(trace: Trace, settings: Settings, target: Target) -> Prediction:
    """Predict from an existing trace."""
    return _predict_cpu(trace, settings, target) if target.is_cpu else _predict_gpu(trace, settings, target)


def _predict_cpu(trace: Trace, settings: Settings, target: Target) -> Prediction:
    growth = _widen(rss_growth(trace), _guess_error(trace))
    process = cpu_process_rss(growth)
    return Prediction(
        target=target.name,
        allocated=growth,
        reserved=growth,
        needed=growth,
        full_speed=growth,
        device=process,
        host=process,
        seconds=_seconds(trace, settings, target),
        peak=_peak(trace, _peak_event(trace)),
        phases=_phases(trace),
        assumptions=_assumptions(trace, target),
    )


def _predict_gpu(trace: Trace, settings: Settings, target: Target) -> Prediction:
    config = parse_allocator(settings.allocator)
    uncapped = replay(trace, config)
    needed = smallest_cap(trace, config, uncapped)
    errors = _relative_errors(trace, settings, target)
    needed_high = needed * (1 + errors["needed"]) + 2 * MIB
    if not config.expandable:
        needed_high = max(needed_high, min(uncapped.reserved, needed * (1 + errors["fragmentation"])))
    full_speed = _estimate(max(uncapped.reserved, needed), errors["reserved"], floor=needed)
    outside_low, outside, outside_high = target.outside
    allocated = _estimate(uncapped.allocated, errors["allocated"])
    return Prediction(
        target=target.name,
        allocated=allocated,
        reserved=_estimate(_reserved_on(target, trace, config, uncapped), errors["reserved"], floor=allocated.low),
        needed=Estimate(needed * (_NEEDED_LOW - _guess_error(trace)), needed, needed_high, Origin.TRACED),
        full_speed=full_speed,
        device=Estimate(
            full_speed.low + outside_low,
            full_speed.value + outside,
            full_speed.high + outside_high,
            Origin.TRACED,
        ),
        host=gpu_process_rss(trace),
        seconds=_seconds(trace, settings, target),
        peak=_peak(trace, uncapped.peak_event),
        phases=_phases(trace),
        assumptions=_assumptions(trace, target),
    )


def _reserved_on(target: Target, trace: Trace, config: AllocatorConfig, uncapped: Replay) -> int:
    """Return the reserved bytes on a GPU: where its memory ends, the allocator returns what it caches."""
    end = target.memory - target.outside[0]
    if uncapped.reserved <= end:
        return uncapped.reserved
    try:
        return replay(trace, replace(config, cap=end)).reserved
    except OutOfMemory:
        return uncapped.reserved


def _seconds(trace: Trace, settings: Settings, target: Target) -> Estimate:
    value = step_seconds(trace, target, settings)
    return Estimate(value / _TIME_FACTOR, value, value * _TIME_FACTOR, Origin.ASSUMED)


def _estimate(value: float, error: float, floor: float = 0) -> Estimate:
    return Estimate(max(value * (1 - error), floor), value, value * (1 + error), Origin.TRACED)


def _relative_errors(trace: Trace, settings: Settings, target: Target) -> dict[str, float]:
    """Return the relative error of each estimate; for `needed`, that of its high, and of its high if fragmented."""
    allocator = "expandable" if parse_allocator(settings.allocator).expandable else "default"
    if RECURRENT_ESTIMATE in trace.assumptions:
        errors = {**_RECURRENT_ERROR, "needed": _RECURRENT_NEEDED_HIGH[allocator]}
    else:
        errors = {**_ERROR, "needed": _NEEDED_HIGH[allocator]}
    errors["fragmentation"] = _FRAGMENTATION
    if not target.measured:
        errors = {name: error * _UNMEASURED_FACTOR for name, error in errors.items()}
        if RECURRENT_ESTIMATE not in trace.assumptions:
            errors["reserved"] = _UNMEASURED_RESERVED
    guess = _guess_error(trace)
    return {name: error + guess for name, error in errors.items()}


def _guess_error(trace: Trace) -> float:
    """Return the relative error of a prediction that rests on guesses about data; 0 if there are none."""
    return _GUESS_ERROR if _is_guessed(trace) or COMPILED in trace.assumptions else 0.0


def _is_guessed(trace: Trace) -> bool:
    return any(guess.is_branch for guess in trace.guesses)


def _widen(estimate: Estimate, error: float) -> Estimate:
    return Estimate(estimate.low * (1 - error), estimate.value, estimate.high * (1 + error), estimate.origin)


def _live_at(trace: Trace, position: int) -> list[int]:
    """Return the indices of the storages that are live after an event."""
    live = set()
    for event in trace.events[: position + 1]:
        if event > 0:
            live.add(event - 1)
        else:
            live.discard(-event - 1)
    return sorted(live)


def _peak_event(trace: Trace) -> int:
    """Return the index of the event after which the most bytes are live."""
    live = peak = peak_event = 0
    for position, event in enumerate(trace.events[: trace.training_events]):
        size = trace.storages[abs(event) - 1].size
        live += size if event > 0 else -size
        if live > peak:
            peak, peak_event = live, position
    return peak_event


def _peak(trace: Trace, position: int) -> Peak:
    kinds: dict[str, int] = defaultdict(int)
    owners: dict[tuple[str, str], int] = defaultdict(int)
    for index in _live_at(trace, position):
        storage = trace.storages[index]
        kinds[storage.kind.value] += storage.size
        owners[storage.module, storage.kind.value] += storage.size
    classes = dict(trace.module_classes)
    last = trace.storages[trace.events[position] - 1]
    return Peak(
        phase=last.phase.value,
        step=last.step,
        op=op_name(last.op),
        module=last.module,
        kinds=tuple(sorted(kinds.items(), key=lambda pair: -pair[1])),
        owners=tuple(
            Owner(module, kind, size, class_of(module, classes))
            for (module, kind), size in sorted(owners.items(), key=lambda pair: -pair[1])
        ),
    )


def _phases(trace: Trace) -> tuple[tuple[str, int], ...]:
    """Return the maximum of live bytes in each phase of the first and the last step, and between steps."""
    ends = [*(start for start, _, _ in trace.phase_starts[1:]), len(trace.events)]
    last_step = max(step for _, step, phase in trace.phase_starts if phase not in _BETWEEN_STEPS)
    maxima: dict[str, int] = {}
    live = 0
    for (start, step, phase), end in zip(trace.phase_starts, ends, strict=True):
        is_between = phase in _BETWEEN_STEPS
        name = phase.value if is_between else f"{'first' if step == 0 else 'steady'} step, {phase.value}"
        is_shown = step in {0, last_step} or is_between
        if is_shown:  # a fused update allocates nothing
            maxima[name] = max(maxima.get(name, 0), live)
        for event in trace.events[start:end]:
            size = trace.storages[abs(event) - 1].size
            live += size if event > 0 else -size
            if is_shown:
                maxima[name] = max(maxima.get(name, 0), live)
    return tuple(maxima.items())


def _assumptions(trace: Trace, target: Target) -> tuple[str, ...]:
    assumptions = list(trace.assumptions)
    if _is_guessed(trace):
        assumptions.append("branches or sizes that depend on data were guessed, so the ranges are wider")
    if not target.measured and not target.is_cpu:
        assumptions.append(
            f"nothing was measured on {target.name}: kernels and workspaces follow the rules of Hopper (compute "
            "capability 9.0) and public runs on RTX 3060 and RTX 4060, so the ranges are wider"
        )
    if not target.memory_known:
        assumptions.append(f"the memory of {target.name} is its nominal size; drivers report slightly less")
    return tuple(assumptions)
