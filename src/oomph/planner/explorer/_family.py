"""Predictions of one family of settings, which differ only in samples and size, from a few traced steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...job import Job
from ...machine import Target
from ...prediction import device_seconds, launch_seconds, predict_trace, replay, trace_device
from ...settings import Settings, parse_allocator
from ...trace import OpCost, Phase, StorageKind, Trace, trace_profile
from ._repeated_step import repeated_step
from ._scaled_trace import TracedPoints
from ._table import PEAK_KINDS, Need

_FEW, _MORE = (1, 2), (8, 32)  # samples that are traced beside the largest number


@dataclass(frozen=True)
class FamilyRequest:
    """Settings to predict for several samples and sizes.

    Attributes:
        settings: what they share.
        target: where memory is predicted.
        timed: the targets and precisions whose time is estimated.
        samples: numbers of samples, in ascending order.
        sizes: sizes in ascending order; empty if the size stays that of the settings.
    """

    settings: Settings
    target: Target
    timed: tuple[tuple[Target, str], ...]
    samples: tuple[int, ...]
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Family:
    """Predictions by size and samples.

    Attributes:
        alone: memory of a batch in one piece.
        accumulating: memory of each of several micro-batches.
        range: factors of the value for the lower and the upper end of memory's range.
        outside: bytes outside the allocator: low, value, high.
        states: bytes of optimizer state.
        seconds: seconds of one micro-batch on the device, by target and precision.
        launching: seconds to launch one micro-batch.
        sum_seconds: seconds to add the gradients of a micro-batch to those before, by target and precision.
        launching_sums: seconds to launch these sums.
        is_derived: False if memory is interpolated, because the traced steps differ in more than sizes.
        assumptions: what the predictions assumed.
    """

    alone: tuple[tuple[Need, ...], ...]
    accumulating: tuple[tuple[Need, ...], ...]
    range: tuple[float, float]
    outside: tuple[float, float, float]
    states: int
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
    points = _traced(job, request)
    grid = [[_at(points, request, count, size) for count in request.samples] for size in request.sizes or (0,)]
    largest = points.traces[max(points.traces)]
    sums = _gradient_sums(largest)
    prediction = predict_trace(repeated_step(largest, 1), request.settings, request.target)
    memory, device = prediction.full_speed, prediction.device
    return Family(
        alone=tuple(tuple(prediction.alone for prediction in row) for row in grid),
        accumulating=tuple(tuple(prediction.accumulating for prediction in row) for row in grid),
        range=(memory.low / memory.value, memory.high / memory.value),
        outside=(device.low - memory.low, device.value - memory.value, device.high - memory.high),
        states=sum(storage.size for storage in largest.storages if storage.kind is StorageKind.STATE),
        seconds={
            (target.name, precision): tuple(tuple(prediction.seconds[index] for prediction in row) for row in grid)
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
    device, traces = trace_device(request.target), {}
    for count in samples:
        for size in dict.fromkeys((sizes[0], sizes[len(sizes) // 2], sizes[-1])):
            settings = replace(request.settings, batch=count, micro_batch=None)
            if request.sizes:
                settings = replace(settings, size=size)
            traces[count, size] = trace_profile(job, settings, device)
    return TracedPoints(traces)


@dataclass(frozen=True)
class _PointPrediction:
    """The prediction at one point; seconds in the order of `FamilyRequest.timed`."""

    alone: Need
    accumulating: Need
    seconds: tuple[float, ...]

    @classmethod
    def of(cls, trace: Trace, request: FamilyRequest) -> _PointPrediction:
        passes = _of_passes(trace.op_costs)
        return cls(
            alone=need_of(repeated_step(trace, 1), request.settings, request.target),
            accumulating=need_of(repeated_step(trace, 2), request.settings, request.target),
            seconds=tuple(_device_seconds(passes, request.settings, *timed) for timed in request.timed),
        )


def _at(points: TracedPoints, request: FamilyRequest, samples: int, size: int) -> _PointPrediction:
    if points.are_alike:
        return _PointPrediction.of(points.at(samples, size), request)
    weights = points.weights(samples, size)
    traced = [_PointPrediction.of(points.traces[point], request) for point in weights]

    def mean(numbers: Iterable[float]) -> float:
        return sum(weight * number for weight, number in zip(weights.values(), numbers, strict=True))

    def mean_need(needs: Sequence[Need]) -> Need:
        kinds = zip(*(need.kinds for need in needs), strict=True)
        return Need(
            round(mean(need.reserved for need in needs)),
            round(mean(need.allocated for need in needs)),
            tuple(round(mean(sizes)) for sizes in kinds),
        )

    return _PointPrediction(
        alone=mean_need([prediction.alone for prediction in traced]),
        accumulating=mean_need([prediction.accumulating for prediction in traced]),
        seconds=tuple(mean(seconds) for seconds in zip(*(prediction.seconds for prediction in traced), strict=True)),
    )


def need_of(trace: Trace, settings: Settings, target: Target) -> Need:
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
    return [
        OpCost("add_", "float32", storage.size // 4, 3 * storage.size, storage.module, Phase.BACKWARD)
        for storage in trace.storages
        if storage.kind is StorageKind.GRADIENT
    ]


def _of_passes(costs: Iterable[OpCost]) -> list[OpCost]:
    return [cost for cost in costs if cost.phase is not Phase.OPTIMIZER]


def _device_seconds(costs: Iterable[OpCost], settings: Settings, target: Target, precision: str) -> float:
    if precision == "amp-fp16":  # may be traced in bf16, which runs the same kernels
        costs = [replace(cost, dtype=cost.dtype.replace("bfloat16", "float16")) for cost in costs]
    return device_seconds(costs, target, replace(settings, precision=precision))
