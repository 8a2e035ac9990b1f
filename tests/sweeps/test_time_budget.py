from __future__ import annotations

from oomph.sweeps import Cell, CellRequest, CellResult, CellTask, Status, TimeBudget


def task(batch: int, seed: int = 0, seconds: float | None = None) -> CellTask:
    cell = Cell((("batch", batch),), seed)
    return CellTask(cell, CellRequest((), "."), lambda *_: CellResult(cell, Status.DONE), seconds=seconds)


def test_without_a_limit_the_order_stays_and_everything_is_allowed() -> None:
    tasks = [task(8, 1, 900), task(8, 0, 900), task(4, 0, 1e9)]
    budget = TimeBudget(None, tasks)
    assert budget.tasks == tuple(tasks)
    assert all(map(budget.allows, tasks))
    assert budget.total == 1e9 + 1800 + 30


def test_with_a_limit_every_cell_comes_once_before_further_seeds_and_short_ones_first() -> None:
    long, short, again = task(8, 0, 100), task(4, 0, 50), task(4, 1, 50)
    now = [0.0]
    budget = TimeBudget(100, [long, again, short], clock=lambda: now[0])
    assert budget.tasks == (short, long, again)
    assert budget.allows(short)
    assert not budget.allows(long)  # it would take 110 s
    now[0] = 30.0
    budget.record(CellResult(short.cell, Status.DONE, seconds=30.0))  # half of what was estimated
    assert budget.allows(long)
    assert budget.allows(again)
    now[0] = 100.0
    assert not budget.allows(again)


def test_without_predictions_the_mean_of_the_cells_so_far_is_expected() -> None:
    first, second = task(1), task(2)
    now = [0.0]
    budget = TimeBudget(10, [first, second], clock=lambda: now[0])
    assert budget.allows(first)
    assert budget.total is None
    now[0] = 6.0
    budget.record(CellResult(first.cell, Status.FAILED, seconds=1.0))
    assert budget.allows(second)
    budget.record(CellResult(first.cell, Status.DONE, seconds=6.0))
    assert not budget.allows(second)


def test_without_predictions_another_seed_of_the_same_values_takes_as_long() -> None:
    long, short = task(8, 1), task(4, 1)
    now = [0.0]
    budget = TimeBudget(10, [task(8), task(4), long, short], clock=lambda: now[0])
    budget.record(CellResult(task(8).cell, Status.DONE, seconds=5.0))
    budget.record(CellResult(task(4).cell, Status.DONE, seconds=1.0))
    now[0] = 7.0
    assert not budget.allows(long)
    assert budget.allows(short)
