from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oomph.detect import DemoSize, write_demo_dataset
from oomph.errors import UsageError
from oomph.sweeps import (
    LOG_FILE,
    Cell,
    CellForecast,
    CellOutcome,
    CellRequest,
    DetectorRun,
    Limits,
    Status,
    detector_task,
    forecast_cells,
    skipped_cell,
)
from oomph.sweeps._detector_process import build_config, nominal_batch
from oomph.sweeps._run_files import FinishedRun, RunResult, read_progress, write_progress

CELL = Cell((("batch", 8), ("img", 64), ("cfg", "n"), ("lr0", 0.02)), seed=3)
RUN = DetectorRun(data="data.yaml", demo="demo", run_dir="", batches=(8, 16), epochs=2)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=4), st.integers(1, 128))
def test_all_batches_divide_the_nominal_batch_unless_it_would_be_far_larger(batches: list[int], usual: int) -> None:
    nominal = nominal_batch(batches, usual)
    divides_all = all(nominal % batch == 0 for batch in batches)
    assert nominal >= max(batches)
    assert nominal <= max(4 * usual, *batches)
    assert divides_all or nominal == max(usual, *batches)


@pytest.mark.parametrize(
    ("batches", "usual", "expected"),
    [
        ((16, 32, 64), 64, 64),
        ((8, 16, 32), 40, 32),
        ((16, 24, 32), 64, 96),
        ((128,), 64, 128),
        ((16, 17), 64, 64),
    ],
)
def test_nominal_batches(batches: tuple[int, ...], usual: int, expected: int) -> None:
    assert nominal_batch(batches, usual) == expected


def test_a_cell_becomes_a_run_and_its_config(tmp_path: Path) -> None:
    own = RUN.of(CELL, tmp_path)
    assert DetectorRun.parse(own.argument()) == own
    config = build_config(own)
    assert (config.batch, config.imgsz, config.cfg, config.seed, config.epochs) == (8, 64, "n", 3, 2)
    assert config.run_dir == tmp_path / "runs" / CELL.name
    # All cells make the same updates, whatever their batch and however well they do.
    assert (config.hyp.lr0, config.hyp.nominal_batch, config.hyp.same_updates, config.patience) == (0.02, 64, True, 0)


@pytest.mark.parametrize(("device", "expected"), [("gpu", 8), ("cpu", 16)])
def test_the_budget_is_that_of_the_device_that_trains(
    device: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device == "gpu")
    config = build_config(replace(RUN.of(CELL, tmp_path), gpu_budget=8, host_budget=16))
    assert config.budget == expected


def test_a_setting_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    own = RUN.of(replace(CELL, values=(("lr", 0.1),)), tmp_path)
    with pytest.raises(UsageError, match="--set sets 'lr', which is not a setting"):
        build_config(own)


def test_a_complete_run_is_done_whatever_became_of_its_process(tmp_path: Path) -> None:
    result = RunResult({"mAP50": 0.5}, 100, 90, uses_gpu=True, extra={"images/s": 7.0})
    result.save(tmp_path)
    row = FinishedRun(str(tmp_path), Limits())(CELL, tmp_path, CellOutcome(signal=9, host_peak=5, gpu_peak=99))
    assert (row.status, row.metrics, row.predicted, row.gpu_peak, row.host_peak) == (
        Status.DONE,
        {"mAP50": 0.5},
        100,
        90,
        5,
    )
    on_cpu = replace(result, uses_gpu=False)
    on_cpu.save(tmp_path)
    row = FinishedRun(str(tmp_path), Limits())(CELL, tmp_path, CellOutcome(exit_code=0, host_peak=5, gpu_peak=99))
    assert (row.gpu_peak, row.host_peak, row.memory) == (None, 90, 90)


def test_a_run_that_cannot_fit_says_why(tmp_path: Path) -> None:
    (tmp_path / LOG_FILE).write_text("train: 4 images\noomph: it needs 9 GiB, and the budget is 1 GiB; use less.\n")
    row = FinishedRun(str(tmp_path), Limits())(CELL, tmp_path, CellOutcome(exit_code=3))
    assert (row.status, row.why, row.fix) == (
        Status.OUT_OF_MEMORY,
        "it needs 9 GiB, and the budget is 1 GiB",
        ("use less.",),
    )
    skipped = skipped_cell(CellForecast(CELL, why_not="it needs 9 GiB", fix="use less"))
    assert (skipped.status, skipped.why, skipped.fix) == (Status.SKIPPED, "it needs 9 GiB", ("use less",))


def test_progress_is_read_from_the_folder_of_the_cell(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    write_progress(tmp_path, 0.25)
    assert read_progress(tmp_path) == 0.25


def test_a_task_needs_what_is_predicted(tmp_path: Path) -> None:
    forecast = CellForecast(CELL, peak=80, host=100, gpu=200, seconds=5.0, micro_batches=1)
    task = detector_task(RUN, forecast, tmp_path, CellRequest((), str(tmp_path), limits=Limits(host=1000)))
    assert task.need == Limits(host=100, gpu=200)
    assert (task.seconds, task.request.limits.host) == (5.0, 1000)
    assert DetectorRun.parse(task.request.argv[-1]) == RUN.of(CELL, tmp_path)


@pytest.mark.large
def test_cells_are_predicted_in_a_process_of_their_own(tmp_path: Path) -> None:
    data = write_demo_dataset(tmp_path / "data", DemoSize(train=8, val=2))
    run = DetectorRun(str(data), "", "", batches=(4, 8), epochs=1)
    cells = [Cell((("batch", batch), ("img", 64), ("cfg", "n")), seed) for batch in (4, 8) for seed in (0, 1)]
    messages: list[str] = []
    forecasts = list(forecast_cells(run, cells, tmp_path, tmp_path, messages.append))
    assert [forecast.cell for forecast in forecasts] == cells
    assert all(forecast.fits and forecast.micro_batches == 1 for forecast in forecasts)
    first, _, last, _ = forecasts
    assert 0 < (first.peak or 0) < (last.peak or 0) < (last.host or 0)
    assert messages[:2] == ["every cell updates the weights after 64 images", "train: 8 images, 43 boxes"]
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UsageError, match="'q' is not a network"):
        list(forecast_cells(run, [Cell((("cfg", "q"),))], tmp_path, tmp_path, messages.append))
