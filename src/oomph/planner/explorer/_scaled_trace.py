"""Traces for other samples and sizes, from a few traced ones.

The same operations run for every number of samples and every size; what they allocate and compute grows with them. So
each allocation and each cost is the polynomial through its traced values, linear in the samples and quadratic in the
size. Workspaces of libraries come, grow and stop growing with the number of elements: they are on the lines between the
traced ones, in the order of their elements, and where there is none, it counts as empty.
"""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...trace import OpCost, Storage, StorageKind, Trace

Point = tuple[int, int]  # samples, size


@dataclass(frozen=True, eq=False)
class TracedPoints:
    """Traces of one step at every pair of some numbers of samples and some sizes.

    Those of one sample count only for one sample, which models and kernels treat differently.
    """

    traces: Mapping[Point, Trace]

    @functools.cached_property
    def _samples(self) -> tuple[int, ...]:
        return tuple(sorted({samples for samples, _ in self.traces}))

    @functools.cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(sorted({size for _, size in self.traces}))

    @functools.cached_property
    def _sizes_by_label(self) -> Mapping[Point, Mapping[Hashable, int]]:
        return {
            point: {label: storage.size for label, storage in zip(_labels(trace), trace.storages, strict=True)}
            for point, trace in self.traces.items()
        }

    @functools.cache  # noqa: B019  lives as long as the traces
    def _columns(self, base: Point, points: tuple[Point, ...]) -> list[tuple[int, ...]]:
        """Return the bytes of each storage of a trace at some points."""
        sizes = [self._sizes_by_label[point] for point in points]
        return [tuple(column.get(label, 0) for column in sizes) for label in self._sizes_by_label[base]]

    @functools.cached_property
    def are_alike(self) -> bool:
        """True if the traced steps differ only in sizes and workspaces, so that others can be derived from them."""
        return all(
            len({_structure(self.traces[samples, size]) for samples in group for size in self._sizes}) == 1
            for group in self._groups
        )

    @property
    def _groups(self) -> tuple[tuple[int, ...], ...]:
        several = tuple(samples for samples in self._samples if samples > 1)
        return ((1,), several) if 1 in self._samples and several else (self._samples,)

    def _points_for(self, samples: int) -> tuple[Point, ...]:
        group = self._groups[0 if samples == 1 else -1]
        return tuple((count, size) for count in group for size in self._sizes)

    def weights(self, samples: int, size: int) -> dict[Point, float]:
        """Return the weight of each traced point in a number at another one."""
        points = self._points_for(samples)
        group = tuple(dict.fromkeys(count for count, _ in points))
        across = dict(zip(group, line_weights(group, samples), strict=True))
        along = dict(zip(self._sizes, polynomial_weights(self._sizes, size), strict=True))
        return {(count, side): across[count] * along[side] for count, side in points}

    def _workspace_weights(self, samples: int, size: int) -> list[float]:
        points = sorted(self._points_for(samples), key=_elements)
        line = line_weights([_elements(point) for point in points], _elements((samples, size)), ends=True)
        weights = dict(zip(points, line, strict=True))
        return [weights[point] for point in self._points_for(samples)]

    def at(self, samples: int, size: int) -> Trace:
        """Return the trace at a point, if the traced steps are alike."""
        points = self._points_for(samples)
        base = max(count for count, _ in points), min(self._sizes, key=lambda side: abs(side - size))
        usual, workspaces = list(self.weights(samples, size).values()), self._workspace_weights(samples, size)
        trace = self.traces[base]

        def scaled(storage: Storage, column: tuple[int, ...]) -> Storage:
            weights = workspaces if storage.kind is StorageKind.WORKSPACE else usual
            return replace(storage, size=max(round(sum(map(operator.mul, weights, column))), 0))

        return replace(
            trace,
            storages=tuple(map(scaled, trace.storages, self._columns(base, points))),
            op_costs=self.costs(samples, size),
        )

    def costs(self, samples: int, size: int) -> tuple[OpCost, ...]:
        """Return the operations at a point."""
        weights = {point: weight for point, weight in self.weights(samples, size).items() if weight}
        columns = zip(*(self.traces[point].op_costs for point in weights), strict=True)
        return tuple(_weighted(costs, tuple(weights.values())) for costs in columns)


def polynomial_weights(knots: Sequence[int], value: int) -> list[float]:
    """Return the weight of each knot in the polynomial through all of them."""
    weights = []
    for knot in knots:
        weight = 1.0
        for other in knots:
            if other != knot:
                weight *= (value - other) / (knot - other)
        weights.append(weight)
    return weights


def line_weights(knots: Sequence[int], value: int, *, ends: bool = False) -> list[float]:
    """Return the weight of each knot on the line through the two around a value.

    Args:
        knots: the knots, in ascending order.
        value: where.
        ends: True if everything outside is as at the nearest knot; otherwise lines go on.
    """
    if ends:
        value = min(max(value, knots[0]), knots[-1])
    right = min(max(sum(knot < value for knot in knots), 1), len(knots) - 1)
    left = max(right - 1, 0)
    weights = [0.0] * len(knots)
    share = (value - knots[left]) / (knots[right] - knots[left]) if knots[right] > knots[left] else 1.0
    weights[left] += 1 - share
    weights[right] += share
    return weights


def _elements(point: Point) -> int:
    """Return a number that grows as the elements of images: samples times the square of the size."""
    samples, size = point
    return samples * (size or 1) ** 2


def _weighted(costs: Sequence[OpCost], weights: Sequence[float]) -> OpCost:
    flops = sum(weight * cost.flops for weight, cost in zip(weights, costs, strict=True))
    traffic = sum(weight * cost.traffic for weight, cost in zip(weights, costs, strict=True))
    return replace(costs[0], flops=max(round(flops), 0), traffic=max(round(traffic), 0))


def _structure(trace: Trace) -> tuple[Hashable, ...]:
    """Return the order of allocations, frees and operations, without workspaces."""
    storages = (trace.storages[abs(event) - 1] for event in trace.events)
    events = zip(trace.events, storages, strict=True)
    order = tuple((event > 0, s.op, s.module, s.kind) for event, s in events if s.kind is not StorageKind.WORKSPACE)
    return order, tuple(cost.op for cost in trace.op_costs)


def _labels(trace: Trace) -> list[Hashable]:
    """Return a label for each storage that is the same in traces that are alike."""
    labels: list[Hashable] = []
    numbers: dict[Hashable, int] = defaultdict(int)
    position = 0
    for storage in trace.storages:
        if storage.kind is StorageKind.WORKSPACE:
            place = position, storage.op
            labels.append((*place, numbers[place]))
            numbers[place] += 1
        else:
            labels.append(position)
            position += 1
    return labels
