from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph.report.run._series import MAX_POINTS, Series, finite, points_of, thin

NUMBERS = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(st.floats(0, 1e5), NUMBERS), min_size=1, max_size=300), st.integers(8, 40))
def test_thinned_series_keep_points_of_the_series_and_its_extremes(
    points: list[tuple[float, float]], limit: int
) -> None:
    points = sorted(points)
    series = Series("x", [at for at, _ in points], [value for _, value in points])
    thinned = thin(series, limit)
    kept = list(zip(thinned.times, thinned.values, strict=True))
    assert len(kept) <= limit or len(points) <= limit
    assert set(kept) <= set(points)
    assert list(thinned.times) == sorted(thinned.times)
    assert (max(thinned.values), min(thinned.values)) == (max(series.values), min(series.values))
    assert kept[0][0] == points[0][0]
    assert kept[-1] == points[-1]


def test_each_bucket_keeps_its_minimum_and_maximum() -> None:
    values = [math.sin(number) * (number % 97) for number in range(500_000)]
    thinned = thin(Series("x", [float(number) for number in range(500_000)], values))
    assert len(thinned.times) <= MAX_POINTS
    buckets = (MAX_POINTS - 2) // 2
    length = 499_999 / buckets
    kept = set(thinned.times)
    for bucket in range(0, buckets, 97):
        inside = [n for n in range(int(bucket * length), int((bucket + 1) * length) + 2) if int(n / length) == bucket]
        assert float(max(inside, key=lambda n: values[n])) in kept
        assert float(min(inside, key=lambda n: values[n])) in kept


def test_equal_times_and_values_are_thinned() -> None:
    thinned = thin(Series("x", [5.0] * 10_000, [1.0] * 10_000), 10)
    assert len(thinned.times) <= 10


@pytest.mark.parametrize("value", [True, None, [], {}, "", "nan", "inf", math.nan, math.inf, 10**400, "1e999", "a,b"])
def test_what_is_not_a_finite_number_is_none(value: object) -> None:
    assert finite(value) is None


def test_points_leave_out_gaps_and_text() -> None:
    lines: list[dict[str, Any]] = [
        {"t": 1, "loss": 2},
        {"t": 2},
        {"t": 3, "loss": math.nan},
        {"t": 4, "loss": "5"},
        {"t": 5, "loss": 1e300},
    ]
    assert points_of(lines, "loss") == ([1.0, 5.0], [2.0, 1e300])
