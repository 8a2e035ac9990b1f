"""Detection of steady growth in a series of sizes; noise, a warmup and growth that levels off don't count."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MIN_VALUES = 40  # after the warmup
_WARMUP_FRACTION = 0.25  # of the series; caches fill and workers start
_BINS = 80  # medians that slopes are computed from, so that the cost doesn't depend on the length
_MIN_GROWTH_FRACTION = 0.05  # of the level
_MIN_GROWTH_OVER_NOISE = 4.0
_MIN_RISE_FRACTION = 0.2  # of the growth in each third; growth that levels off has less in the last ones
_SIGMA_PER_MAD = 1.4826  # standard deviation per median absolute deviation, for normal noise


@dataclass(frozen=True)
class Growth:
    """Steady growth of a series.

    Attributes:
        slope: Growth from one value to the next.
        total: Growth after the warmup.
        level: The current value.
    """

    slope: float
    total: float
    level: float


def find_growth(values: Sequence[float], min_total: float) -> Growth | None:
    """Return the steady growth of a series, or None if it grows by less than `min_total`.

    The slope is the median of the slopes between all pairs (Theil-Sen), which outliers in a third of the values don't
    change. Growth counts if it is large relative to the level and the noise, and if the low end of the values rises in
    every third.
    """
    settled = values[int(len(values) * _WARMUP_FRACTION) :]
    if len(settled) < MIN_VALUES:
        return None
    slope = _theil_sen_slope(settled)
    total, level = slope * (len(settled) - 1), statistics.median(settled[-len(settled) // 4 :])
    if total < max(min_total, _MIN_GROWTH_FRACTION * level) or total < _MIN_GROWTH_OVER_NOISE * _noise(settled, slope):
        return None
    floors = [_floor(quarter) for quarter in _split(settled, 4)]
    rises = [after - before for before, after in itertools.pairwise(floors)]
    is_steady = min(rises) >= _MIN_RISE_FRACTION * (floors[-1] - floors[0]) > 0
    return Growth(slope, total, level) if is_steady else None


def _theil_sen_slope(values: Sequence[float]) -> float:
    size = max(len(values) // _BINS, 1)
    bins = [statistics.median(values[start : start + size]) for start in range(0, len(values) - size + 1, size)]
    slopes = [(bins[b] - bins[a]) / (b - a) for a in range(len(bins)) for b in range(a + 1, len(bins))]
    return statistics.median(slopes) / size


def _noise(values: Sequence[float], slope: float) -> float:
    """Return the standard deviation of the values around the line."""
    residuals = [value - slope * index for index, value in enumerate(values)]
    center = statistics.median(residuals)
    return _SIGMA_PER_MAD * statistics.median(abs(residual - center) for residual in residuals)


def _split(values: Sequence[float], count: int) -> list[Sequence[float]]:
    size = len(values) // count
    return [values[index * size : (index + 1) * size] for index in range(count)]


def _floor(values: Sequence[float]) -> float:
    """Return the low end of the values, which ignores short peaks."""
    return sorted(values)[len(values) // 5]
