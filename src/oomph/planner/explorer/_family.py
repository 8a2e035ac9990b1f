"""Predictions of one family of settings, which differ only in samples and size, from a few traced steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...job import Job
from ...machine import Target
from ...prediction import device_seconds, launch_seconds, predict_trace, replay, trace_device
from ...settings import Settings, parse_allocator
from ...trace import OpCost, Phase, StorageKind, Trace, trace_profile
from ._other_update import with_update_of
from ._repeated_step import repeated_step
from ._scaled_trace import TracedPoints
from ._table import PEAK_KINDS, Need, NeedGrid

_FEW, _MORE = (1, 2), (8, 32)  # samples that are traced beside the largest number


@dataclass(frozen=True)
class FamilyRequest:
    """Settings to predict for several samples and sizes.

    Attributes:
        settings: what they share, but the optimizer.
        optimizers: implementations of the update.
        target: where memory is predicted.
        timed: the targets and precisions whose time is estimated.
        samples: numbers of samples, in ascending order.
        sizes: sizes in ascending order; empty if the size stays that of the settings.
    """

    settings: Settings
    optimizers: tuple[str, ...]
    target: Target
    timed: tuple[tuple[Target, str], ...]
    samples: tuple[int, ...]
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Family:
    """Predictions by size and samples.

    Attributes:
        alone: memory of a batch in one piece, by optimizer.
        accumulating: memory of each of several micro-batches, by optimizer.
        range: factors of the value for the lower and the upper end of memory's range.
        outside: bytes outside the allocator: low, value, high.
        seconds: seconds of one micro-batch on the device, by target and precision.
        launching: seconds to launch one micro-batch.
        sum_seconds: seconds to add the gradients of a micro-batch to those before, by target and precision.
        launching_sums: seconds to launch these sums.
        is_derived: False if memory is interpolated, because the traced steps differ in more than sizes.
        assumptions: what the predictions assumed.
    """

    alone: Mapping[str, NeedGrid]
    accumulating: Mapping[str, NeedGrid]
    range: tuple[float, float]
    outside: tuple[float, float, float]
    seconds: Mapping[tuple[str, str], tuple[tuple[float, ...], ...]]
    launching: float
    sum_seconds: Mapping[tuple[str, str], float]
    launching_sums: float
    is_derived: bool
    assumptions: tuple[str, ...]


def predict_family(job: Job, request: FamilyRequest) -> Family:
    """Trace the ends and the middle of the samples and sizes, and derive the others.

    Raises:
        UsageError: the Job can't run with these settings.
    """
    points, updates = _traced(job, request), _traced_updates(job, request)
    grid = [
        [_at(points, updates, request, (count, size)) for count in request.samples] for size in request.sizes or (0,)
    ]
    largest = points.traces[max(points.traces)]
    sums = _gradient_sums(largest)
    prediction = predict_trace(repeated_step(largest, 1), request.settings, request.target)
    memory, device = prediction.full_speed, prediction.device
    return Family(
        alone={name: tuple(tuple(point.alone[name] for point in row) for row in grid) for name in request.optimizers},
        accumulating={
            name: tuple(tuple(point.accumulating[name] for point in row) for row in grid) for name in request.optimizers
        },
        range=(memory.low / memory.value, memory.high / memory.value),
        outside=(device.low - memory.low, device.value - memory.value, device.high - memory.high),
        seconds={
            (target.name, precision): tuple(tuple(point.seconds[index] for point in row) for row in grid)
            for index, (target, precision) in enumerate(request.timed)
        },
        launching=launch_seconds(_of_passes(largest.op_costs)),
        sum_seconds={
            (target.name, precision): _device_seconds(sums, request.settings, target, precision)
            for target, precision in request.timed
        },
        launching_sums=launch_seconds(sums),
        is_derived=points.are_alike,
        assumptions=prediction.assumptions,
    )


def _traced(job: Job, request: FamilyRequest) -> TracedPoints:
    """Trace one, two and the most samples at the first, a middle and the last size; for one size, more samples."""
    counts = (*_FEW, *(() if request.sizes else _MORE), request.samples[-1])
    samples = dict.fromkeys(count for count in counts if count in request.samples)
    sizes = request.sizes or (0,)
    ends = dict.fromkeys((sizes[0], sizes[len(sizes) // 2], sizes[-1]))
    return TracedPoints(
        {(count, size): _trace(job, request, count, size, request.optimizers[0]) for count in samples for size in ends}
    )


def _traced_updates(job: Job, request: FamilyRequest) -> dict[str, Trace]:
    smallest = request.samples[0], (request.sizes or (0,))[0]
    return {name: _trace(job, request, *smallest, name) for name in request.optimizers[1:]}


def _trace(job: Job, request: FamilyRequest, samples: int, size: int, optimizer: str) -> Trace:
    settings = replace(request.settings, batch=samples, micro_batch=None, optimizer=optimizer)
    if request.sizes:
        settings = replace(settings, size=size)
    return trace_profile(job, settings, trace_device(request.target))


@dataclass(frozen=True)
class _PointPrediction:
    """The prediction at one point: memory by optimizer, and seconds in the order of `FamilyRequest.timed`."""

    alone: Mapping[str, Need]
    accumulating: Mapping[str, Need]
    seconds: tuple[float, ...]

    @classmethod
    def of(cls, trace: Trace, updates: Mapping[str, Trace], request: FamilyRequest) -> _PointPrediction:
        first, *others = request.optimizers
        steps = {first: trace, **{name: with_update_of(trace, updates[name]) for name in others}}

        def needs(micro_batches: int) -> dict[str, Need]:
            return {
                name: _need(repeated_step(step, micro_batches), request.settings, request.target)
                for name, step in steps.items()
            }

        passes = _of_passes(trace.op_costs)
        seconds = tuple(_device_seconds(passes, request.settings, *timed) for timed in request.timed)
        return cls(needs(1), needs(2), seconds)


def _at(
    points: TracedPoints, updates: Mapping[str, Trace], request: FamilyRequest, point: tuple[int, int]
) -> _PointPrediction:
    if points.are_alike:
        return _PointPrediction.of(points.at(*point), updates, request)
    weights = points.weights(*point)
    traced = [_PointPrediction.of(points.traces[other], updates, request) for other in weights]

    def mean(numbers: Iterable[float]) -> float:
        return sum(weight * number for weight, number in zip(weights.values(), numbers, strict=True))

    def mean_need(needs: Sequence[Need]) -> Need:
        kinds = zip(*(need.kinds for need in needs), strict=True)
        return Need(
            round(mean(need.reserved for need in needs)),
            round(mean(need.allocated for need in needs)),
            tuple(round(mean(sizes)) for sizes in kinds),
        )

    names = request.optimizers
    return _PointPrediction(
        alone={name: mean_need([prediction.alone[name] for prediction in traced]) for name in names},
        accumulating={name: mean_need([prediction.accumulating[name] for prediction in traced]) for name in names},
        seconds=tuple(mean(seconds) for seconds in zip(*(prediction.seconds for prediction in traced), strict=True)),
    )


def _need(trace: Trace, settings: Settings, target: Target) -> Need:
    """Return the predicted memory of a trace; on the CPU, the growth of RSS."""
    if target.is_cpu:
        prediction = predict_trace(trace, settings, target)
        kinds, size = dict(prediction.peak.kinds), round(prediction.full_speed.value)
        return Need(size, size, tuple(kinds.get(kind, 0) for kind in PEAK_KINDS))
    result = replay(trace, parse_allocator(settings.allocator))
    return Need(result.reserved, result.allocated, _kinds(trace, result.peak_event))


def _kinds(trace: Trace, position: int) -> tuple[int, ...]:
    """Return the bytes of each kind that are live after an event."""
    live: dict[str, int] = dict.fromkeys(PEAK_KINDS, 0)
    for event in trace.events[: position + 1]:
        storage = trace.storages[abs(event) - 1]
        live[storage.kind.value] += storage.size if event > 0 else -storage.size
    return tuple(live.values())


def _gradient_sums(trace: Trace) -> list[OpCost]:
    """Return the operations that add gradients to those of the micro-batches before."""
    gradients = {storage.module: storage.size for storage in trace.storages if storage.kind is StorageKind.GRADIENT}
    return [OpCost("add_", "float32", size // 4, 3 * size, path, Phase.BACKWARD) for path, size in gradients.items()]


def _of_passes(costs: Iterable[OpCost]) -> list[OpCost]:
    return [cost for cost in costs if cost.phase is not Phase.OPTIMIZER]


def _device_seconds(costs: Iterable[OpCost], settings: Settings, target: Target, precision: str) -> float:
    if precision == "amp-fp16":  # may be traced in bf16, which runs the same kernels
        costs = [replace(cost, dtype=cost.dtype.replace("bfloat16", "float16")) for cost in costs]
    return device_seconds(costs, target, replace(settings, precision=precision))
