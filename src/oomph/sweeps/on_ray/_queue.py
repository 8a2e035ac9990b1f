"""The queue of many machines: each cell is a task of a Ray cluster, or of a Ray of its own on this machine."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._queue import CELLS_FOLDER, CellProgress, CellTask, OnProgress
from .._result import CellResult, Status
from ..supervisor import kill_cell
from ._cluster import connect_to_ray, largest_memory
from ._worker import THREADS, run_on_worker

_POLL_SECONDS = 0.25
_STOP_SECONDS = 15.0  # a cell ends in less than a second; the driver may take longer to release GPU memory


def run_cells_on_ray(
    tasks: Iterable[CellTask],
    folder: Path,
    on_result: Callable[[CellResult], None],
    *,
    jobs: int | None = None,
    gpus: float | None = None,
    on_progress: OnProgress = lambda _: None,
) -> None:
    """Run cells on Ray until all have a result; an exception in this thread, such as Ctrl-C, kills those that run.

    The cluster is that of RAY_ADDRESS or of `ray start` on this machine; without one, a local Ray runs meanwhile.

    Args:
        tasks: The cells to run.
        folder: The folder of the sweep, which all machines share; a cell's files are in `cells/<its name>`.
        on_result: Called with each result as it comes, from this thread.
        jobs: The number of cells that may run at the same time; None for as many as Ray has room for.
        gpus: The GPUs of a cell, or its share of one; None for one if the cluster has GPUs.
        on_progress: Called for each running cell a few times a second, from this thread.

    Raises:
        UsageError: Ray isn't installed or can't be reached, or no machine has that many GPUs.
    """
    pending = list(tasks)
    with connect_to_ray(jobs) as ray:
        running = _RayCells(ray, folder.absolute(), gpus)
        try:
            while pending or running:
                while pending and (jobs is None or len(running) < jobs):
                    running.start(pending.pop(0))
                for result in running.wait():
                    on_result(result)
                for progress in running.progress():
                    on_progress(progress)
        except BaseException:
            for result in running.stop():
                on_result(result)
            raise


@dataclass
class _RayCell:
    task: CellTask
    folder: Path
    start: float | None = None


class _RayCells:
    """The cells that were given to Ray and have no result yet."""

    def __init__(self, ray: Any, folder: Path, gpus: float | None) -> None:
        self._ray, self._folder = ray, folder
        self._gpus = float("GPU" in ray.cluster_resources()) if gpus is None else gpus
        self._memory = largest_memory(ray.nodes(), self._gpus)
        self._function = ray.remote(run_on_worker)
        self._cells: dict[Any, _RayCell] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def start(self, task: CellTask) -> None:
        cell = _RayCell(task, self._folder / CELLS_FOLDER / task.cell.name)
        shutil.rmtree(cell.folder, ignore_errors=True)  # its folder shows when it starts
        # Ray runs cells side by side only if their needs fit; a larger one runs alone.
        memory = min((task.need or task.request.limits).host or 0, self._memory)
        options = {"num_cpus": 1, "num_gpus": self._gpus, "memory": memory, "max_retries": 0, "name": task.cell.name}
        function = self._function.options(**options)
        self._cells[function.remote(task, cell.folder, os.environ.get(THREADS))] = cell

    def wait(self) -> Iterator[CellResult]:
        """Wait a moment, and return the results that have come."""
        done, _ = self._ray.wait(list(self._cells), num_returns=1, timeout=_POLL_SECONDS)
        return filter(None, map(self._take, done))

    def progress(self) -> Iterator[CellProgress]:
        """Return how long each running cell has run, and how much of it is done; its memory is known only there."""
        now = time.monotonic()
        for cell in self._cells.values():
            if cell.start is None and cell.folder.exists():
                cell.start = now
            if cell.start is not None:
                fraction = cell.task.read_fraction(cell.folder)
                yield CellProgress(cell.task.cell, round(now - cell.start, 1), fraction=fraction)

    def stop(self) -> tuple[CellResult, ...]:
        """Kill all cells, wait for their ends, and return the results of those that had ended before."""
        left = list(self._cells)
        for force in (False, True):  # a worker that is interrupted waits for the end of its cell; a killed one can't
            for reference in left:
                self._ray.cancel(reference, force=force)
            if left:
                _, left = self._ray.wait(left, num_returns=len(left), timeout=_STOP_SECONDS)
        return tuple(filter(None, map(self._take, list(self._cells))))

    def _take(self, reference: Any) -> CellResult | None:
        """Return the result of a cell that has ended; None if it was interrupted."""
        cell, errors = self._cells.pop(reference), self._ray.exceptions
        try:
            result: CellResult = self._ray.get(reference, timeout=_STOP_SECONDS)
        except (errors.TaskCancelledError, errors.GetTimeoutError):
            kill_cell(str(cell.folder))
            return None
        except errors.RayTaskError as error:
            raise error.cause from None
        except errors.RayError as error:
            kill_cell(str(cell.folder))  # if it ran here; elsewhere its supervisor does it
            return _explain_death(cell.task, error, is_memory=isinstance(error, errors.OutOfMemoryError))
        return None if result.status is Status.INTERRUPTED else result


def _explain_death(task: CellTask, error: Exception, *, is_memory: bool) -> CellResult:
    if is_memory:
        why = "Ray killed its worker because the memory of the machine was nearly full"
        return CellResult(task.cell, Status.OUT_OF_MEMORY, why=why, fix=("Limit the cells: --budget ram=SIZE.",))
    why = f"its Ray worker or machine died ({type(error).__name__})"
    return CellResult(
        task.cell, Status.KILLED, why=why, fix=("Check `ray status` and the logs of Ray on its machine.",)
    )
