from __future__ import annotations

import pytest

from oomph.report.watch._history import History
from oomph.units import GIB, MIB


def filled(seconds: int, per_second: float, start: float = GIB) -> History:
    history = History(120)
    for second in range(seconds + 1):
        history.add(1000.0 + second, {"ram": start + second * per_second})
    return history


def test_growth_has_a_rate_and_a_forecast() -> None:
    trend = filled(30, MIB).trend("ram", GIB + 90 * MIB)
    assert trend is not None
    assert (trend.rate, trend.forecast) == ("+60 MiB/min", "full in 1 min")
    assert trend.seconds_left == pytest.approx(60)


def test_full_memory_is_full_now() -> None:
    trend = filled(30, MIB).trend("ram", GIB)
    assert trend is not None
    assert trend.forecast == "full in 0 s"


@pytest.mark.parametrize(
    ("seconds", "per_second", "limit", "rate"),
    [
        (19, MIB, 2 * GIB, "+60 MiB/min"),  # too short for a forecast
        (30, MIB, None, "+60 MiB/min"),  # no limit
        (30, -MIB, 2 * GIB, "-60 MiB/min"),  # shrinks
        (30, MIB, 2**60, "+60 MiB/min"),  # in more than a day
        (30, 0.01 * MIB, GIB + MIB, "steady"),
    ],
)
def test_no_forecast(seconds: int, per_second: float, limit: float | None, rate: str) -> None:
    trend = filled(seconds, per_second).trend("ram", limit)
    assert trend is not None
    assert (trend.rate, trend.forecast) == (rate, "")


def test_trend_needs_time() -> None:
    assert filled(2, MIB).trend("ram") is None
    assert filled(2, MIB).trend("unknown") is None


def test_trend_covers_the_last_minute_only() -> None:
    history = filled(60, 10 * MIB)
    for second in range(61, 121):
        history.add(1000.0 + second, {"ram": 2 * GIB})
    trend = history.trend("ram")
    assert trend is not None
    assert trend.per_minute == 0


def test_a_cell_is_the_largest_value_of_its_time() -> None:
    history = History(120)
    for second, value in enumerate([1.0, 9.0, 2.0, 3.0, 4.0, 4.0]):
        history.add(1000.0 + second, {"x": value})
    assert history.cells("x", 4, 2.0) == [None, 9.0, 3.0, 4.0]


def test_a_gap_repeats_the_value_before() -> None:
    history = History(120)
    for time, value in ((1000.0, 5.0), (1008.0, 7.0)):
        history.add(time, {"x": value})
    assert history.cells("x", 5, 2.0) == [5.0, 5.0, 5.0, 5.0, 7.0]
    assert history.cells("x", 2, 2.0) == [5.0, 7.0]  # the first value is further back


def test_cells_keep_their_values_as_time_passes() -> None:
    history = filled(40, MIB)
    before = history.cells("ram", 10, 2.0)
    history.add(1042.0, {"ram": 0.0})
    assert history.cells("ram", 10, 2.0) == [*before[1:], 0.0]


def test_old_values_and_ended_processes_are_forgotten() -> None:
    history = History(60)
    history.add(1000.0, {"tree1": 1.0, "ram": 1.0})
    history.add(1061.0, {"ram": 1.0})
    assert set(history._series) == {"ram"}
    assert len(history._series["ram"]) == 1


def test_memory_that_goes_up_and_down_with_each_step_is_steady() -> None:
    history = History()
    for second in range(61):
        history.add(float(second), {"gpu": 10 * GIB if second % 3 == 0 and second else GIB})
    trend = history.trend("gpu", 80 * GIB)
    assert trend is not None
    assert (trend.rate, trend.forecast) == ("steady", "")
