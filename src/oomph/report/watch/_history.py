"""Recent values of memory: trends, forecasts and cells of a sparkline."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...units import MIB, format_size, format_time

_MINUTE = 60.0
_TREND_SECONDS = 60.0  # a trend covers this time at most
_MIN_TREND_SECONDS = 3.0
_MIN_FORECAST_SECONDS = 20.0  # a trend over less time gives no forecast
_MIN_TREND_BYTES = MIB  # per minute; less is steady
_MAX_FORECAST_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Trend:
    """Change of a value.

    Attributes:
        per_minute: Bytes per minute; 0 if the value is steady.
        seconds_left: Time until the limit is reached at this rate; None if it isn't within a day.
    """

    per_minute: float
    seconds_left: float | None = None

    @property
    def rate(self) -> str:
        """The change as text: `"+40 MiB/min"`, `"steady"`."""
        if not self.per_minute:
            return "steady"
        return f"{'+' if self.per_minute > 0 else ''}{format_size(self.per_minute)}/min"

    @property
    def forecast(self) -> str:
        """The time until the memory is full as text: `"full in 28 min"`; empty if it isn't expected."""
        return "" if self.seconds_left is None else f"full in {format_time(self.seconds_left)}"


class History:
    """Values of the last minutes, by name.

    Args:
        seconds: The time after which values are forgotten; a trend needs a minute.
    """

    def __init__(self, seconds: float = _TREND_SECONDS) -> None:
        self._seconds = max(seconds, _TREND_SECONDS)
        self._series: dict[str, deque[tuple[float, float]]] = {}
        self._now = 0.0

    def add(self, time: float, values: Mapping[str, float]) -> None:
        """Add the values of one moment."""
        self._now = time
        for name, value in values.items():
            self._series.setdefault(name, deque()).append((time, value))
        for name, series in tuple(self._series.items()):
            while series and time - series[0][0] > self._seconds:
                series.popleft()
            if not series:
                del self._series[name]

    def trend(self, name: str, limit: float | None = None) -> Trend | None:
        """Return the trend of a value, or None if it is not known long enough."""
        recent = [(time, value) for time, value in self._series.get(name, ()) if self._now - time <= _TREND_SECONDS]
        if not recent or recent[-1][0] - recent[0][0] < _MIN_TREND_SECONDS:
            return None
        (start, _), (end, last) = recent[0], recent[-1]
        per_minute = _slope(recent) * _MINUTE
        if abs(per_minute) < _MIN_TREND_BYTES:
            return Trend(0.0)
        if not limit or per_minute < 0 or end - start < _MIN_FORECAST_SECONDS:
            return Trend(per_minute)
        seconds_left = max(limit - last, 0.0) / per_minute * _MINUTE
        return Trend(per_minute, seconds_left if seconds_left < _MAX_FORECAST_SECONDS else None)

    def cells(self, name: str, count: int, cell_seconds: float) -> list[float | None]:
        """Return the largest value in each of the last `count` intervals; None before the first value.

        An interval without a value repeats the one before it. Intervals start at multiples of `cell_seconds`, so that a
        drawing moves from cell to cell and keeps its shape.
        """
        first = int(self._now // cell_seconds) - count + 1
        largest: dict[int, float] = {}
        for time, value in self._series.get(name, ()):
            index = int(time // cell_seconds) - first
            largest[index] = max(value, largest.get(index, value))
        earlier = [index for index in largest if index < 0]
        previous = largest[max(earlier)] if earlier else None
        cells: list[float | None] = []
        for index in range(count):
            previous = largest.get(index, previous)
            cells.append(previous)
        return cells


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the change per second, from the medians of both halves: memory that only goes up and down is steady."""
    half = (len(points) + 1) // 2
    (start, first), (end, last) = (
        [statistics.median(column) for column in zip(*part, strict=True)] for part in (points[:half], points[-half:])
    )
    return float((last - first) / (end - start))
