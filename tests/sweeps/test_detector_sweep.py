"""Whole sweeps of detectors on the embedded dataset, with real limits and signals."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from oomph.detect import DemoSize, write_demo_dataset
from oomph.units import MIB

from .processes import processes_with, wait_until_gone

pytestmark = pytest.mark.large

OOMPH = (sys.executable, "-m", "oomph")
SWEEP = Path("runs/sweep/sweep")
GRID = ("--batch", "4,8,16", "--img", "64,96,128", "--cfg", "n", "--epochs", "2", "--set", "min_warmup_iterations=4")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small dataset with a broken image, an image that is none and a broken label."""
    monkeypatch.chdir(tmp_path)
    data = write_demo_dataset(tmp_path / "data", DemoSize(train=48, val=16))
    images = data.parent / "images" / "train"
    (images / "0003.png").write_bytes((images / "0003.png").read_bytes()[:200])
    (images / "0004.png").write_text("this is no image")
    (data.parent / "labels" / "train" / "0005.txt").write_text("0 0.5 half 0.1 0.1\n")
    return data


def training_process(cell: str) -> psutil.Process | None:
    """Return the process that trains a cell, if it runs."""
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            folder = process.environ().get("OOMPH_SWEEP_CELL", "")
        except psutil.Error:
            continue
        if folder.endswith(f"/{cell}") and "oomph.sweeps._detector_process" in line:
            return process
    return None


def has_started(cell: str) -> bool:
    """Return True if a cell has trained a step."""
    return (SWEEP / "cells" / cell / "progress").exists()


def when_training(cell: str, act: Callable[[psutil.Process], object]) -> threading.Thread:
    """Do something to the process of a cell as soon as it trains."""

    def watch() -> None:
        while not (has_started(cell) and (process := training_process(cell))):
            time.sleep(0.02)
        act(process)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def rows() -> list[dict[str, Any]]:
    path = SWEEP / "results.jsonl"
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    return [json.loads(line) for line in lines]


def forbid_more_memory(process: psutil.Process) -> None:
    limit = process.memory_info().vms + MIB
    process.rlimit(psutil.RLIMIT_AS, (limit, limit))


def front(points: dict[str, tuple[float, float]]) -> set[str]:
    """Return the names of the points (cost, value) that no other one beats."""
    beaten = {
        a
        for a, b in itertools.permutations(points, 2)
        if points[b][0] <= points[a][0] and points[b][1] >= points[a][1] and points[a] != points[b]
    }
    return set(points) - beaten


def test_a_sweep_in_which_cells_die_in_every_way(data: Path, tmp_path: Path) -> None:
    when_training("batch=4,img=96,cfg=n,min_warmup_iterations=4,seed=0", lambda process: process.send_signal(9))
    when_training("batch=8,img=64,cfg=n,min_warmup_iterations=4,seed=0", lambda process: process.suspend())
    when_training("batch=16,img=128,cfg=n,min_warmup_iterations=4,seed=0", forbid_more_memory)
    command = [*OOMPH, "sweep", "--data", str(data), *GRID, "--timeout", "60s", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    cells = {(dict(row["cell"]["values"])["batch"], dict(row["cell"]["values"])["img"]): row for row in rows()}
    statuses = {key: row["status"] for key, row in cells.items()}
    assert statuses.pop((4, 96)) == "killed"
    assert statuses.pop((8, 64)) == "timed out"
    assert statuses.pop((16, 128)) == "out of memory", cells[16, 128]["why"]
    assert set(statuses.values()) == {"done"}
    assert len(statuses) == 6
    assert "SIGKILL" in cells[4, 96]["why"]
    assert "it ran longer than" in cells[8, 64]["why"]
    for key in statuses:
        row = cells[key]
        assert set(row["metrics"]) >= {"mAP50", "mAP50-95"}
        assert abs(row["predicted"] / row["host_peak"] - 1) < 0.15
        log = (
            SWEEP / "cells" / f"batch={key[0]},img={key[1]},cfg=n,min_warmup_iterations=4,seed=0/output.log"
        ).read_text()
        assert "0003.png" in log
        assert "0004.png" in log
        assert "0005.txt" in log
    names = {
        f"{batch} {img}": (row["host_peak"], row["metrics"]["mAP50"])
        for (batch, img), row in cells.items()
        if row["status"] == "done"
    }
    assert {f"{values['batch']} {values['img']}" for values in document["front"]["memory"]} == front(names)
    assert document["recommendation"]
    assert (SWEEP / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert processes_with(str(tmp_path)) == []


def test_a_killed_sweep_goes_on_in_the_middle_of_its_cell(data: Path, tmp_path: Path) -> None:
    command = [*OOMPH, "sweep", "--data", str(data), "--batch", "8", "--img", "64,96", "--cfg", "n", "--epochs", "4"]
    sweep = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    second = "batch=8,img=96,cfg=n,seed=0"
    state = SWEEP / "runs" / second / "weights" / "state.pt"
    while not state.exists():
        assert sweep.poll() is None
        time.sleep(0.02)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    assert wait_until_gone(str(tmp_path), 20) == []
    assert [row["status"] for row in rows()] == ["done"]
    first = (SWEEP / "runs" / "batch=8,img=64,cfg=n,seed=0" / "results.csv").stat().st_mtime_ns
    resumed = subprocess.run([*OOMPH, "sweep", "--resume"], capture_output=True, text=True, check=True)
    assert "1 of 2 cells have results" in resumed.stdout
    assert [row["status"] for row in rows()] == ["done", "done"]
    assert (SWEEP / "runs" / "batch=8,img=64,cfg=n,seed=0" / "results.csv").stat().st_mtime_ns == first
    log = (SWEEP / "cells" / second / "output.log").read_text()
    assert "epoch 1:" not in log  # it went on from its checkpoint
    assert "epoch 4:" in log


def test_what_cannot_fit_is_skipped_before_anything_runs(data: Path) -> None:
    command = [*OOMPH, "sweep", "--data", str(data), "--batch", "4", "--img", "64,640", "--cfg", "n", "--epochs", "1"]
    result = subprocess.run([*command, "--budget", "ram=620MiB"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert [row["status"] for row in rows()] == ["skipped", "done"]
    assert "and the budget is" in rows()[0]["why"]
    assert not (SWEEP / "cells" / "batch=4,img=640,cfg=n,seed=0").exists()


def test_ray_gives_the_same_cells_as_this_machine(data: Path) -> None:
    pytest.importorskip("ray", reason="the extra oomph[ray] is not installed")
    command = [*OOMPH, "sweep", "--data", str(data), "--batch", "4,8", "--img", "64", "--cfg", "n", "--epochs", "1"]
    documents = [
        json.loads(subprocess.run([*command, "--json", *place], capture_output=True, text=True, check=True).stdout)
        for place in (["--name", "local"], ["--name", "on-ray", "--on", "ray", "--jobs", "2"])
    ]
    local, on_ray = ([(row["cell"], row["status"], row["metrics"]) for row in one["cells"]] for one in documents)
    assert [status for _, status, _ in local] == ["done", "done"]
    assert on_ray == local
