"""Comparison of cells: means over seeds with their scatter, and the cells that no other one beats."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ._grid import Value
from ._result import CellResult

Cost = Literal["memory", "seconds"]


@dataclass(frozen=True)
class Spread:
    """The mean of a number over seeds, and its sample standard deviation; None for a single seed."""

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Summary:
    """The seeds of one combination of values that are done.

    Attributes:
        values: The name and value of each axis.
        seeds: The number of seeds that are done.
        metrics: The metrics by name.
        memory: The largest measured peak, in bytes; None if it was not measured.
        seconds: The mean time; None if it was not measured.
    """

    values: tuple[tuple[str, Value], ...]
    seeds: int
    metrics: Mapping[str, Spread]
    memory: int | None
    seconds: float | None


@dataclass(frozen=True)
class Point:
    """A combination of values in a plot: its cost, its metric, and whether it is on the front."""

    summary: Summary
    cost: float
    metric: float
    on_front: bool


def summarize(results: Sequence[CellResult]) -> tuple[Summary, ...]:
    """Return a summary of each combination of values with a cell that is done, in the order of the results."""
    groups: dict[tuple[tuple[str, Value], ...], list[CellResult]] = {}
    for result in results:
        if result.is_done:
            groups.setdefault(result.cell.values, []).append(result)
    return tuple(_summary(values, group) for values, group in groups.items())


def _summary(values: tuple[tuple[str, Value], ...], group: Sequence[CellResult]) -> Summary:
    names = [name for name in group[0].metrics if all(name in result.metrics for result in group)]
    metrics = {name: spread([result.metrics[name] for result in group]) for name in names}
    sizes = [result.memory for result in group if result.memory is not None]
    times = [result.seconds for result in group if result.seconds is not None]
    return Summary(values, len(group), metrics, max(sizes, default=None), statistics.fmean(times) if times else None)


def spread(numbers: Sequence[float]) -> Spread:
    """Return the mean and the sample standard deviation of at least one number."""
    return Spread(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)


def find_front(summaries: Sequence[Summary], metric: str, cost: Cost, *, minimize: bool = False) -> tuple[Point, ...]:
    """Return the points of all combinations that have both numbers; those that no other one beats are on the front.

    A point beats another one if it is better in one of the two numbers and not worse in the other.
    """
    sign = -1.0 if minimize else 1.0
    pairs = [
        (summary, float(price), summary.metrics[metric].mean)
        for summary in summaries
        if (price := getattr(summary, cost)) is not None and metric in summary.metrics
    ]
    points = []
    best = float("-inf")
    # From the cheapest to the most expensive, a point is on the front if it is better than all before it.
    ordered = sorted(pairs, key=lambda pair: (pair[1], -sign * pair[2]))
    previous: tuple[float, float] | None = None
    for summary, price, value in ordered:
        on_front = sign * value > best or previous == (price, value)
        if on_front:
            best, previous = sign * value, (price, value)
        points.append(Point(summary, price, value, on_front))
    return tuple(points)
