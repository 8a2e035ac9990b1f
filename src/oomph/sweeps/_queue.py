"""The queue of a single machine: runs cells one after the other, or side by side where the budget allows it."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ._grid import Cell
from ._result import CellResult, Status
from .supervisor import CELL_MARK, CellOutcome, CellRequest, Limits, kill_cell, read_outcome, write_request

CELLS_FOLDER = "cells"
_SUPERVISOR_LOG = "supervisor.log"


def unknown_fraction(folder: Path) -> None:
    """Return None: nothing is known about how much of a cell is done."""
    del folder


@dataclass(frozen=True)
class CellTask:
    """A cell to run.

    Attributes:
        cell: The cell.
        request: The command to run, with its limits.
        finish: Makes the result from the cell's folder and its outcome; picklable, so that it can run elsewhere.
        read_fraction: Reads from the cell's folder how much of the cell is done, from 0 to 1; None if it is unknown.
        need: The predicted need of memory; None if it is unknown.
        seconds: The predicted time; None if it is unknown.
    """

    cell: Cell
    request: CellRequest
    finish: Callable[[Cell, Path, CellOutcome], CellResult]
    read_fraction: Callable[[Path], float | None] = unknown_fraction
    need: Limits | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class CellProgress:
    """A running cell.

    Attributes:
        cell: The cell.
        seconds: The time it has run.
        host: The RSS of its process tree now, in bytes.
        gpu: The GPU memory of its process tree now, in bytes; None without a GPU.
        fraction: How much of it is done, from 0 to 1; None if it is unknown.
    """

    cell: Cell
    seconds: float = 0.0
    host: int = 0
    gpu: int | None = None
    fraction: float | None = None


Admit = Callable[[Sequence[CellTask], CellTask], bool]
OnProgress = Callable[[CellProgress], None]


def run_task(
    task: CellTask, folder: Path, on_progress: OnProgress = lambda _: None, stop: threading.Event | None = None
) -> CellResult:
    """Run one cell in a folder of its own; whatever happens to it is a result. It can be called on another machine.

    Args:
        task: The cell to run.
        folder: The folder of the cell's files; what it holds is removed.
        on_progress: Called a few times a second.
        stop: Set it to kill the cell; the result is then `INTERRUPTED`.
    """
    kill_cell(str(folder.absolute()))  # of a sweep that was killed a moment ago
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_request(folder, task.request)
    start = time.monotonic()
    code = _run_supervisor(task, folder, on_progress, stop or threading.Event())
    outcome = read_outcome(folder)
    if outcome is None and stop is not None and stop.is_set():
        return CellResult(task.cell, Status.INTERRUPTED)
    if outcome is None:
        outcome = _outcome_without_supervisor(folder, code, time.monotonic() - start)
    return task.finish(task.cell, folder, outcome)


def _run_supervisor(task: CellTask, folder: Path, on_progress: OnProgress, stop: threading.Event) -> int:
    """Return the exit code of the cell's supervisor when no process of the cell is left."""
    mark = str(folder.absolute())
    with (folder / _SUPERVISOR_LOG).open("wb") as log:
        supervisor = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-m", f"{__package__}.supervisor._cell_process", mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, CELL_MARK: mark},
            start_new_session=True,
        )
    with supervisor:
        assert supervisor.stdin is not None  # noqa: S101  for the type checker
        assert supervisor.stdout is not None  # noqa: S101
        try:
            for line in supervisor.stdout:
                if stop.is_set():
                    supervisor.stdin.close()
                on_progress(CellProgress(task.cell, **json.loads(line), fraction=task.read_fraction(folder)))
        finally:
            # Also after SIGKILL of the supervisor, nothing of the cell may go on.
            supervisor.kill()
            kill_cell(mark, supervisor.pid)
    return supervisor.returncode


def _outcome_without_supervisor(folder: Path, code: int, seconds: float) -> CellOutcome:
    if code < 0:
        return CellOutcome(signal=-code, seconds=seconds)
    return CellOutcome(start_error=f"its supervisor failed, see {folder / _SUPERVISOR_LOG}", seconds=seconds)


class _Running:
    """The cells that run now, each in a thread that waits for its supervisor."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stop = threading.Event()
        self._threads: dict[str, tuple[CellTask, threading.Thread]] = {}
        self._events: queue.Queue[CellProgress | CellResult | BaseException] = queue.Queue()

    @property
    def tasks(self) -> tuple[CellTask, ...]:
        return tuple(task for task, _ in self._threads.values())

    def start(self, task: CellTask) -> None:
        thread = threading.Thread(target=self._run, args=(task,), name=task.cell.name)
        self._threads[task.cell.name] = task, thread
        thread.start()

    def next_event(self) -> CellProgress | CellResult:
        """Wait for a reading or a result; the cell of a result no longer runs."""
        event = self._events.get()
        if isinstance(event, BaseException):
            raise event
        if isinstance(event, CellResult):
            _, thread = self._threads.pop(event.cell.name)
            thread.join()
        return event

    def stop(self) -> tuple[CellResult, ...]:
        """Kill all cells, wait for their ends, and return the results of those that had ended before."""
        self._stop.set()
        for _, thread in self._threads.values():
            thread.join()
        events = [self._events.get() for _ in range(self._events.qsize())]
        return tuple(
            event for event in events if isinstance(event, CellResult) and event.status is not Status.INTERRUPTED
        )

    def _run(self, task: CellTask) -> None:
        try:
            folder = self._folder / CELLS_FOLDER / task.cell.name
            self._events.put(run_task(task, folder, self._events.put, self._stop))
        except BaseException as error:  # noqa: BLE001  raised again in the thread of the queue
            self._events.put(error)


def run_cells(  # noqa: PLR0913  options by name
    tasks: Iterable[CellTask],
    folder: Path,
    on_result: Callable[[CellResult], None],
    *,
    jobs: int = 1,
    admit: Admit = lambda *_: True,
    worth_starting: Callable[[CellTask], bool] = lambda _: True,
    on_progress: OnProgress = lambda _: None,
) -> None:
    """Run cells until all have a result; an exception in this thread, such as Ctrl-C, kills those that run.

    Args:
        tasks: The cells to run.
        folder: The folder of the sweep; a cell's files are in `cells/<its name>`.
        on_result: Called with each result as it comes, from this thread.
        jobs: The number of cells that may run at the same time.
        admit: Says whether a cell may run beside those that run now; a cell always may run alone.
        worth_starting: Says whether there is time for a cell; one that isn't worth starting gets no result.
        on_progress: Called for each running cell a few times a second, from this thread.
    """
    pending, running = list(tasks), _Running(folder)
    try:
        while pending or running.tasks:
            if len(running.tasks) < jobs:
                pending = [task for task in pending if worth_starting(task)]
            while (task := _next_task(pending, running.tasks, jobs, admit)) is not None:
                pending.remove(task)
                running.start(task)
                on_progress(CellProgress(task.cell))
            if not running.tasks:
                return
            event = running.next_event()
            if isinstance(event, CellProgress):
                on_progress(event)
            else:
                on_result(event)
    except BaseException:
        for result in running.stop():
            on_result(result)
        raise


def _next_task(pending: Sequence[CellTask], running: Sequence[CellTask], jobs: int, admit: Admit) -> CellTask | None:
    """Return the first cell that may start now."""
    if not running:
        return next(iter(pending), None)
    if len(running) >= jobs:
        return None
    return next((task for task in pending if admit(running, task)), None)
