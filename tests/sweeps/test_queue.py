from __future__ import annotations

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from oomph.sweeps import (
    LOG_FILE,
    CellProgress,
    CellRequest,
    CellResult,
    CellTask,
    CommandTemplate,
    Grid,
    Limits,
    Status,
    command_tasks,
    parse_metrics,
    run_cells,
    run_task,
)
from oomph.units import MIB

from .processes import SCRIPT, processes_with, wait_until_gone

pytestmark = pytest.mark.medium


def make_tasks(folder: Path, *modes: str, limits: Limits | None = None, jobs: int = 1) -> tuple[CellTask, ...]:
    template = CommandTemplate(f"{sys.executable} {SCRIPT} {{mode}} {folder / 'ran'}")
    cells = Grid((("mode", modes),)).cells()
    metrics = parse_metrics([r"score: (\S+)"])
    request = CellRequest((), str(folder), limits=limits or Limits(), is_alone=jobs == 1)
    return command_tasks(template, cells, metrics, request)


def run(folder: Path, *modes: str, limits: Limits | None = None, jobs: int = 1) -> dict[object, CellResult]:
    results: list[CellResult] = []
    run_cells(make_tasks(folder, *modes, limits=limits, jobs=jobs), folder, results.append, jobs=jobs)
    return {result.cell.values[0][1]: result for result in results}


def test_each_way_to_die_is_a_result_and_nothing_is_left_running(tmp_path: Path) -> None:
    modes = ("good", "grow", "hang", "killed", "crash", "memory", "silent", "daemon")
    results = run(tmp_path, *modes, limits=Limits(seconds=1.5, host=64 * MIB), jobs=2)
    assert {mode: result.status for mode, result in results.items()} == {
        "good": Status.DONE,
        "grow": Status.OUT_OF_MEMORY,
        "hang": Status.TIMED_OUT,
        "killed": Status.KILLED,
        "crash": Status.FAILED,
        "memory": Status.OUT_OF_MEMORY,
        "silent": Status.FAILED,
        "daemon": Status.DONE,
    }
    assert results["good"].metrics == {"score": 0.5}
    assert (results["good"].exit_code, results["crash"].exit_code) == (0, 1)
    assert results["crash"].why == "RuntimeError: the data is broken (exit code 1)"
    assert results["silent"].why == "the metric score was not found in its output"
    assert 64 * MIB < (results["grow"].host_peak or 0) < 300 * MIB
    assert 1.5 <= (results["hang"].seconds or 0) < 4
    assert processes_with(str(tmp_path)) == []
    assert sorted((tmp_path / "ran").read_text().split()) == sorted(modes)


def test_a_command_that_does_not_exist_is_a_result(tmp_path: Path) -> None:
    tasks = command_tasks(
        CommandTemplate("no-such-program-1"), Grid(()).cells(), parse_metrics(["(a)"]), CellRequest((), str(tmp_path))
    )
    result = run_task(tasks[0], tmp_path / "cell")
    assert result.status is Status.FAILED
    assert "can't be started (FileNotFoundError" in result.why


def test_a_task_can_be_sent_to_another_machine(tmp_path: Path) -> None:
    task: CellTask = pickle.loads(pickle.dumps(make_tasks(tmp_path, "good")[0]))  # noqa: S301  our own bytes
    assert run_task(task, tmp_path / "cell").metrics == {"score": 0.5}


def test_progress_within_a_cell_is_read_from_its_folder(tmp_path: Path) -> None:
    task = dataclasses.replace(
        make_tasks(tmp_path, "slow")[0], read_fraction=lambda folder: float((folder / LOG_FILE).is_file()) / 2
    )
    readings: list[CellProgress] = []
    assert run_task(task, tmp_path / "cell", readings.append).status is Status.DONE
    assert {reading.fraction for reading in readings} == {0.5}
    assert readings[-1].cell == task.cell


def test_a_cell_killed_from_outside_is_explained(tmp_path: Path) -> None:
    def kill(_: CellProgress) -> None:
        for process in psutil.process_iter(["cmdline"]):
            if (process.info["cmdline"] or [])[1:4] == [str(SCRIPT), "hang", str(tmp_path / "ran")]:
                process.kill()

    results: list[CellResult] = []
    run_cells(make_tasks(tmp_path, "hang", "good"), tmp_path, results.append, on_progress=kill)
    assert [result.status for result in results] == [Status.KILLED, Status.DONE]
    assert results[0].why.startswith("by SIGKILL")
    assert wait_until_gone(str(tmp_path)) == []


def test_a_killed_supervisor_takes_its_cell_with_it(tmp_path: Path) -> None:
    def kill(progress: CellProgress) -> None:
        if progress.seconds < 0.4:
            return  # until the command has started its own processes
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if "oomph.sweeps.supervisor._cell_process" in line and line[-1].startswith(str(tmp_path)):
                process.kill()

    for task in make_tasks(tmp_path, "hang", "escape"):
        result = run_task(task, tmp_path / "cell", kill)
        assert result.status is Status.KILLED
        assert processes_with(str(tmp_path)) == []


def test_an_exception_stops_running_cells_and_keeps_finished_ones(tmp_path: Path) -> None:
    results: list[CellResult] = []

    def interrupt(progress: CellProgress) -> None:
        if progress.seconds > 0.4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells(make_tasks(tmp_path, "good", "hang", "slow"), tmp_path, results.append, jobs=2, on_progress=interrupt)
    assert {result.status for result in results} <= {Status.DONE}
    assert processes_with(str(tmp_path)) == []


def test_stopping_a_cell_gives_no_row(tmp_path: Path) -> None:
    stop = threading.Event()
    result = run_task(make_tasks(tmp_path, "hang")[0], tmp_path / "cell", lambda _: stop.set(), stop)
    assert result.status is Status.INTERRUPTED
    assert processes_with(str(tmp_path)) == []


def test_a_failing_finish_ends_the_sweep_with_its_error(tmp_path: Path) -> None:
    def finish(*_: object) -> CellResult:
        raise OSError("the disk is full")

    task = make_tasks(tmp_path, "good")[0]
    with pytest.raises(OSError, match="the disk is full"):
        run_cells([CellTask(task.cell, task.request, finish)], tmp_path, lambda _: None)


def test_cells_run_side_by_side_where_they_are_admitted(tmp_path: Path) -> None:
    together: list[set[str]] = []

    def admit(running: Sequence[CellTask], task: CellTask) -> bool:
        modes = {str(other.cell.values[0][1]) for other in (*running, task)}
        if "good" in modes:  # always runs alone
            return False
        together.append(modes)
        return True

    results: list[CellResult] = []
    tasks = make_tasks(tmp_path, "slow", "good", "daemon", jobs=2)
    run_cells(tasks, tmp_path, results.append, jobs=2, admit=admit)
    assert together == [{"slow", "daemon"}]
    assert [result.status for result in results] == [Status.DONE] * 3
    assert results[-1].cell.values == (("mode", "good"),)


def test_the_end_of_the_sweep_by_sigkill_ends_its_cells(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.sweeps.test_queue import make_tasks
from oomph.sweeps import run_cells
folder = Path({str(tmp_path)!r})
run_cells(make_tasks(folder, "hang", "escape", "slow"), folder, print, jobs=2)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 20
    while not {"sleep 987", "sleep 985"} <= set(processes_with(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert wait_until_gone(str(tmp_path), 5) == []


def test_a_cell_that_is_not_worth_starting_gets_no_result(tmp_path: Path) -> None:
    results: list[CellResult] = []
    tasks = make_tasks(tmp_path, "good", "hang")
    run_cells(tasks, tmp_path, results.append, worth_starting=lambda task: task is tasks[0])
    assert [result.cell for result in results] == [tasks[0].cell]
