"""Whether a series of sizes grows for good: noise, a warm-up and growth that levels off are no leak."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 40  # values after the warm-up from which a trend can be told
_WARM_UP = 0.25  # of the series, in which caches fill and workers start
_BINS = 80  # medians that slopes are taken of, so that a series of any length costs the same
_SHARE = 0.05  # of the level: growth below that is no trouble
_NOISE = 4.0  # growth must stand out of the noise this many times
_EVEN = 0.2  # each third of the way must bring this share of the growth; levelling off brings less and less
_SIGMA = 1.4826  # from a median absolute deviation to a standard deviation, for bell-shaped noise


@dataclass(frozen=True)
class Growth:
    """A series that grows: by `slope` from one value to the next, by `total` after its warm-up, now at `level`."""

    slope: float
    total: float
    level: float


def find_growth(values: Sequence[float], least: float) -> Growth | None:
    """The steady growth of a series, if it has one of at least `least` in all.

    The slope is the median of the slopes between all pairs (Theil and Sen), which a third of wild values can't move.
    Growth counts if it is large against the level and the noise, and if the floor rises in every third alike.
    """
    settled = values[int(len(values) * _WARM_UP) :]
    if len(settled) < FEWEST:
        return None
    slope = _slope(settled)
    total, level = slope * (len(settled) - 1), statistics.median(settled[-len(settled) // 4 :])
    if total < max(least, _SHARE * level) or total < _NOISE * _noise(settled, slope):
        return None
    floors = [_floor(part) for part in _parts(settled, 4)]
    rises = [after - before for before, after in itertools.pairwise(floors)]
    even = min(rises) >= _EVEN * (floors[-1] - floors[0]) > 0
    return Growth(slope, total, level) if even else None


def _slope(values: Sequence[float]) -> float:
    size = max(len(values) // _BINS, 1)
    bins = [statistics.median(values[at : at + size]) for at in range(0, len(values) - size + 1, size)]
    slopes = [(bins[b] - bins[a]) / (b - a) for a in range(len(bins)) for b in range(a + 1, len(bins))]
    return statistics.median(slopes) / size


def _noise(values: Sequence[float], slope: float) -> float:
    """How far values lie from the line, typically."""
    rest = [value - slope * at for at, value in enumerate(values)]
    middle = statistics.median(rest)
    return _SIGMA * statistics.median(abs(value - middle) for value in rest)


def _parts(values: Sequence[float], count: int) -> list[Sequence[float]]:
    size = len(values) // count
    return [values[at * size : (at + 1) * size] for at in range(count)]


def _floor(values: Sequence[float]) -> float:
    """The low end of a part: what is held even when nothing is going on."""
    return sorted(values)[len(values) // 5]
