"""A time limit for a whole sweep: the cells worth most run first, and none starts that would not end in time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from ._queue import CellTask
from ._result import CellResult

_START_SECONDS = 10.0  # that a training process takes before its first and after its last step


class TimeBudget:
    """Chooses cells within a time limit.

    Estimates are corrected by the cells that are done: they are of the right order only.

    Args:
        seconds: The limit; None for none.
        tasks: The cells to run.
        clock: Returns seconds, for tests.

    Attributes:
        tasks: The cells in the order in which they run: with a limit, all with one seed before further seeds, and of
            these the shortest first, so that as many as possible are compared.
    """

    def __init__(
        self, seconds: float | None, tasks: Sequence[CellTask], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds
        self.tasks = tuple(tasks)
        if seconds is not None:
            self.tasks = tuple(sorted(tasks, key=lambda task: (task.cell.seed, task.seconds or 0.0)))
        self._by_cell = {task.cell: task for task in tasks}
        self._ratios: list[float] = []
        self._times: dict[object, list[float]] = {}  # by the values of a cell

    def estimate(self, task: CellTask) -> float | None:
        """Return the estimated seconds of a cell; None if nothing is known."""
        if task.seconds is None:
            same = self._times.get(task.cell.values, [])
            known = same or [seconds for times in self._times.values() for seconds in times]
            return statistics.fmean(known) if known else None
        ratio = statistics.fmean(self._ratios) if self._ratios else 1.0
        return ratio * (task.seconds + _START_SECONDS)

    @property
    def total(self) -> float | None:
        """The estimated seconds of all cells, one after the other; None if nothing is known."""
        estimates = [self.estimate(task) for task in self.tasks]
        known = [seconds for seconds in estimates if seconds is not None]
        return sum(known) if len(known) == len(estimates) else None

    def allows(self, task: CellTask) -> bool:
        """Return True if a cell should end in time."""
        left = float("inf") if self._end is None else self._end - self._clock()
        return left > 0 and (self.estimate(task) or 0.0) <= left

    def record(self, result: CellResult) -> None:
        """Learn from the time of a cell that is done."""
        if not result.is_done or result.seconds is None:
            return
        self._times.setdefault(result.cell.values, []).append(result.seconds)
        predicted = self._by_cell[result.cell].seconds
        if predicted is not None:
            self._ratios.append(result.seconds / (predicted + _START_SECONDS))
