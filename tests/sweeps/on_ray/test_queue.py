from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from oomph.errors import UsageError
from oomph.sweeps import CellProgress, CellResult, CellTask, Limits, Status, run_cells, run_cells_on_ray
from oomph.sweeps.on_ray._cluster import largest_memory
from oomph.units import MIB
from tests.sweeps.processes import processes_with, wait_until_gone
from tests.sweeps.test_queue import make_tasks

has_ray = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not has_ray, reason="ray isn't installed: pip install 'oomph[ray]'")


def ray_processes(driver: int) -> set[psutil.Process]:
    """Return the processes of the local Ray that a driver has started; other tests may have their own."""
    return {
        process
        for process in psutil.Process(driver).children(recursive=True)
        if process.name() in {"raylet", "gcs_server"} and process.status() != psutil.STATUS_ZOMBIE
    }


def test_the_missing_extra_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as caught:
        run_cells_on_ray((), tmp_path, lambda _: None)
    assert (caught.value.why, caught.value.fix) == ("--on ray needs the package ray", "pip install 'oomph[ray]'")
    assert dict(os.environ) == before


def node(**resources: float) -> dict[str, Any]:
    return {"Alive": True, "Resources": resources}


def test_the_largest_machine_that_can_run_a_cell_limits_its_request_for_memory() -> None:
    nodes = [node(CPU=8, memory=100.0), node(CPU=8, GPU=1, memory=40.0), node(GPU=8, memory=90.0)]
    assert largest_memory(nodes, 0) == 100
    assert largest_memory(nodes, 0.5) == 40
    with pytest.raises(UsageError, match="a cell needs 2 GPUs, and the machines of the Ray cluster have at most 1"):
        largest_memory([*nodes[:2], {**nodes[2], "Alive": False}], 2)


@needs_ray
@pytest.mark.large
def test_a_cluster_that_is_not_there_is_one_sentence_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UsageError, match=r"the Ray cluster 127\.0\.0\.1:1 can't be reached"):
        run_cells_on_ray((), tmp_path, lambda _: None)


@needs_ray
@pytest.mark.large
def test_cells_are_the_same_as_on_the_local_queue(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    modes, handler = ("good", "grow", "killed", "crash", "hang"), signal.getsignal(signal.SIGTERM)
    readings: list[CellProgress] = []

    def results(folder: Path, *, on_ray: bool) -> dict[str, tuple[object, ...]]:
        folder.mkdir()
        tasks = make_tasks(folder, *modes, limits=Limits(seconds=1.5, host=64 * MIB), jobs=2)
        rows: list[CellResult] = []
        if on_ray:
            run_cells_on_ray(tasks, folder, rows.append, jobs=2, on_progress=readings.append)
        else:
            run_cells(tasks, folder, rows.append, jobs=2)
        assert sorted((folder / "ran").read_text().split()) == sorted(modes)
        assert processes_with(str(folder)) == []
        assert all((row.host_peak or 0) > MIB for row in rows)
        return {row.cell.name: (row.status, row.metrics, row.exit_code) for row in rows}

    on_ray = results(tmp_path / "ray", on_ray=True)
    assert on_ray == results(tmp_path / "local", on_ray=False)
    assert {status for status, *_ in on_ray.values()} == {
        Status.DONE,
        Status.OUT_OF_MEMORY,
        Status.KILLED,
        Status.FAILED,
        Status.TIMED_OUT,
    }
    assert max(reading.seconds for reading in readings if "hang" in reading.cell.name) > 1
    assert ray_processes(os.getpid()) == set()
    assert signal.getsignal(signal.SIGTERM) is handler
    assert capfd.readouterr() == ("", "")


@needs_ray
@pytest.mark.large
def test_a_worker_that_dies_is_a_row_and_takes_its_cell_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def kill_worker(_: CellProgress) -> None:
        if "sleep 987" not in processes_with(str(tmp_path)):
            return
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any("on_ray._cell_process" in child.cmdline()[-1] for child in process.children()):
                    process.kill()

    rows: list[CellResult] = []
    run_cells_on_ray(make_tasks(tmp_path, "hang", "good"), tmp_path, rows.append, jobs=1, on_progress=kill_worker)
    assert [row.status for row in rows] == [Status.KILLED, Status.DONE]
    assert rows[0].why == "its Ray worker or machine died (WorkerCrashedError)"
    assert processes_with(str(tmp_path)) == []
    assert capfd.readouterr() == ("", "")


@needs_ray
@pytest.mark.large
def test_an_exception_stops_running_cells_and_keeps_finished_ones(tmp_path: Path) -> None:
    rows: list[CellResult] = []

    def interrupt(_: CellProgress) -> None:
        if {"sleep 987", "sleep 985"} <= set(processes_with(str(tmp_path))):
            raise KeyboardInterrupt

    tasks = make_tasks(tmp_path, "good", "hang", "escape", "slow")
    with pytest.raises(KeyboardInterrupt):
        run_cells_on_ray(tasks, tmp_path, rows.append, jobs=2, on_progress=interrupt)
    assert [row.status for row in rows] == [Status.DONE]
    assert processes_with(str(tmp_path)) == []


@needs_ray
@pytest.mark.large
def test_a_failing_finish_ends_the_sweep_with_its_error(tmp_path: Path) -> None:
    finish: Any = int  # takes no cell
    task: CellTask = dataclasses.replace(make_tasks(tmp_path, "good")[0], finish=finish)
    with pytest.raises(TypeError, match="int"):
        run_cells_on_ray([task], tmp_path, lambda _: None, jobs=1)


@needs_ray
@pytest.mark.large
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_sweep_by_a_signal_ends_its_cells_and_ray(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.sweeps.test_queue import make_tasks
from oomph.sweeps import run_cells_on_ray
folder = Path({str(tmp_path)!r})
run_cells_on_ray(make_tasks(folder, "hang", "escape", "slow"), folder, print, jobs=2)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 60
    while not {"sleep 987", "sleep 985"} <= set(processes_with(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.05)
    ray = ray_processes(process.pid)
    assert {one.name() for one in ray} == {"raylet", "gcs_server"}
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # as the terminal does
    else:
        process.kill()
    output, _ = process.communicate()
    assert output == b""
    assert wait_until_gone(str(tmp_path), 10) == []
    _, left = psutil.wait_procs(ray, timeout=20)
    assert left == []
