from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph.sweeps import Cell, CellResult, Spread, Status, Summary, find_front, spread, summarize

NUMBERS = st.integers(0, 6)


def make_summary(number: int, memory: int | None, metric: float) -> Summary:
    return Summary((("n", number),), 1, {"m": Spread(metric)}, memory, 1.0)


@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12), minimize=st.booleans())
def test_the_front_is_what_no_other_point_beats(*, pairs: list[tuple[int, int]], minimize: bool) -> None:
    summaries = [make_summary(number, cost, metric) for number, (cost, metric) in enumerate(pairs)]
    points = find_front(summaries, "m", "memory", minimize=minimize)
    assert len(points) == len(pairs)
    for point in points:
        beaten = False
        for cost, metric in pairs:
            gain = point.metric - metric if minimize else metric - point.metric
            beaten |= cost <= point.cost and gain >= 0 and (cost < point.cost or gain > 0)
        assert point.on_front != beaten


def test_cells_without_a_number_are_no_points() -> None:
    summaries = [make_summary(0, None, 1), make_summary(1, 5, 1)]
    assert [point.summary for point in find_front(summaries, "m", "memory")] == summaries[1:]
    assert find_front(summaries, "other", "memory") == ()


def make_result(batch: int, seed: int, metric: float, memory: int, status: Status = Status.DONE) -> CellResult:
    metrics = {"m": metric, f"only {seed}": 1.0}
    return CellResult(Cell((("batch", batch),), seed), status, metrics, host_peak=memory, seconds=2.0 + seed)


def test_seeds_are_averaged_and_failed_ones_left_out() -> None:
    results = [
        make_result(8, 0, 0.1, 10),
        make_result(8, 1, 0.2, 30),
        make_result(8, 2, 0.6, 20),
        make_result(8, 3, 9.0, 90, Status.KILLED),
        make_result(4, 0, 0.5, 7),
    ]
    eight, four = summarize(results)
    assert eight.values == (("batch", 8),)
    assert (eight.seeds, eight.memory, eight.seconds) == (3, 30, 3.0)
    assert list(eight.metrics) == ["m"]
    assert eight.metrics["m"].mean == pytest.approx(0.3)
    assert eight.metrics["m"].deviation == pytest.approx(0.2645751)
    assert four.metrics["m"] == Spread(0.5, None)


def test_gpu_memory_is_compared_where_there_is_any() -> None:
    result = CellResult(Cell((), 0), Status.DONE, host_peak=5, gpu_peak=3)
    assert result.memory == 3
    assert spread([2.0]) == Spread(2.0, None)
