"""Series of values over time, and their reduction to a number of points that a page can draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

MAX_POINTS = 4000  # of a series


@dataclass(frozen=True)
class Series:
    """Values over time.

    Attributes:
        label: its name in legends and tables.
        times: seconds since the start of the run, or epochs; ascending.
        values: one finite number for each time.
        group: the number of its color.
        dash: the style of its line.
        start: the time of day at 0 seconds, in seconds since 1970; None for epochs.
        breaks: times at which the run was resumed: the line is interrupted there.
    """

    label: str
    times: Sequence[float]
    values: Sequence[float]
    group: int = 0
    dash: str = "solid"
    start: float | None = None
    breaks: tuple[float, ...] = ()

    @property
    def maximum(self) -> float:
        """The largest value."""
        return max(self.values)


def finite(value: object) -> float | None:
    """Return a value as a number; None if it is not a finite one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def points_of(lines: Iterable[Mapping[str, Any]], field: str) -> tuple[list[float], list[float]]:
    """Return the times and values of a field in samples or steps, without values that are not finite numbers."""
    times, values = [], []
    for line in lines:
        value = line.get(field)
        if isinstance(value, (int, float)) and (number := finite(value)) is not None:
            times.append(float(line["t"]))
            values.append(number)
    return times, values


def thin(series: Series, limit: int = MAX_POINTS) -> Series:
    """Return a series with at most `limit` of its points: the first, the last, and each bucket's smallest and largest.

    All points of the result are points of the series. Buckets are equally long in time.
    """
    times, values, count = series.times, series.values, len(series.times)
    if count <= limit:
        return series
    buckets = max((limit - 2) // 2, 1)
    start, length = times[0], (times[-1] - times[0]) / buckets or 1.0
    smallest: dict[int, int] = {}
    largest: dict[int, int] = {}
    for index in range(count):
        bucket = min(int((times[index] - start) / length), buckets - 1)
        if values[index] < values[smallest.setdefault(bucket, index)]:
            smallest[bucket] = index
        if values[index] > values[largest.setdefault(bucket, index)]:
            largest[bucket] = index
    kept = sorted({0, count - 1, *smallest.values(), *largest.values()})
    return replace(series, times=[times[index] for index in kept], values=[values[index] for index in kept])
