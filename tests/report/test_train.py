from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from torch import nn

import oomph
from oomph.detect import StepStats, TrainResult
from oomph.planner import Plan, PlanChange
from oomph.prediction import Estimate, Origin, Prediction
from oomph.report import ConsoleProgress, TrainReport, emit
from oomph.settings import Settings
from oomph.units import MIB

JOB = oomph.Job(
    model=lambda: nn.Linear(4, 4),
    batch=lambda n, _: (torch.randn(n, 4), torch.randn(n, 4)),
    loss=nn.functional.mse_loss,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
)
STATS = StepStats(
    epoch=3,
    epochs=100,
    iteration=1,
    iterations=4,
    loss=1.0,
    images_per_second=12.0,
    micro_batches=1,
    peak_bytes=None,
    rss_bytes=1 << 30,
    seconds_left=4000.0,
)
BEST = {"epoch": 3, "map50": 0.5, "map50_95": 0.25}


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return oomph.predict(JOB, Settings(batch=1), "H200")


def make_plan(prediction: Prediction, budget: int) -> Plan:
    """Plan a batch of 8 that needs 100 MiB plus 10 MiB per sample of a micro-batch."""

    def predict(settings: Settings) -> Prediction:
        need = 100.0 * MIB + 10 * MIB * max(settings.micro_batch_sizes)
        return dataclasses.replace(prediction, device=Estimate(need, need, need * 1.1, Origin.TRACED))

    requested = Settings(batch=8, size=640)
    fits = predict(requested).device.high <= budget * MIB
    planned = requested if fits else dataclasses.replace(requested, micro_batch=4)
    change = PlanChange(
        "the batch of 8 is split into 2 micro-batches of at most 4",
        f"the requested settings may need up to 198 MiB, and the budget is {budget} MiB",
        "BatchNorm sees micro-batches",
    )
    changes = () if fits else (change,)
    return Plan(requested, planned, budget * MIB, predict(requested), predict(planned), changes)


def make_result(plan: Plan, **changes: Any) -> TrainResult:
    defaults: dict[str, Any] = {"measured": 200 * MIB, "predicted": 190 * MIB, "retries": 0, "saved_epoch": 3}
    return TrainResult("runs/train/exp", 3, BEST, plan, **{**defaults, **changes})


def test_the_plan_shows_the_requested_settings_and_the_changes(
    prediction: Prediction, capsys: pytest.CaptureFixture[str]
) -> None:
    with ConsoleProgress() as progress:
        progress.on_plan(make_plan(prediction, 170))
    shown = capsys.readouterr().out
    assert "requested: batch 8 at 640, fp32: needs 180 MiB (up to 198 MiB) of 170 MiB" in shown
    assert "the batch of 8 is split into 2 micro-batches of at most 4" in shown
    assert "plan: predicted need 140 MiB" in shown
    assert "\x1b" not in shown


def test_the_plan_shows_what_is_reserved(prediction: Prediction, capsys: pytest.CaptureFixture[str]) -> None:
    with ConsoleProgress() as progress:
        progress.on_plan(dataclasses.replace(make_plan(prediction, 170), reserved=30 * MIB))
    assert "of 170 MiB (200 MiB minus 30 MiB for loaded batches and the guard)" in capsys.readouterr().out


def test_a_plan_without_changes_says_so(prediction: Prediction, capsys: pytest.CaptureFixture[str]) -> None:
    with ConsoleProgress() as progress:
        progress.on_plan(make_plan(prediction, 500))
    assert "plan: the requested settings fit" in capsys.readouterr().out


def test_an_epoch_is_one_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with ConsoleProgress() as progress:
        progress.on_step(STATS)
        progress.on_epoch_end({"epoch": 1, "loss": 1.0, "images_per_second": 10.0, "peak_bytes": 10 * MIB, **BEST})
        progress.on_epoch_end({"epoch": 2, "loss": 1.0, "images_per_second": None, "peak_bytes": 10 * MIB})
    shown = capsys.readouterr().out
    assert shown.count("\n") == 2
    assert "mAP50 0.500  mAP50-95 0.250  10 images/s  peak 10 MiB" in shown
    assert "epoch 2: loss 1.000  peak 10 MiB" in shown


def test_a_task_has_its_own_total() -> None:
    with ConsoleProgress() as progress:
        progress.on_progress("train: image headers", 8, 8)
        progress.on_progress("plan: settings predicted", 3, None)
        (task,) = progress._bar.tasks
        assert (task.fields["title"], task.completed, task.total) == ("plan: settings predicted", 3, None)
        progress.on_step(STATS)
        (task,) = progress._bar.tasks
        assert (task.completed, task.total) == (1, 4)


def test_the_bar_shows_the_progress_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    progress = ConsoleProgress()
    with progress:
        progress.on_step(STATS)
    task = progress._bar.tasks[0]
    assert task.fields["title"] == "epoch 3/100"
    assert task.fields["details"] == "1 h 07 min left  loss 1.000  12 images/s  1 micro-batch  RSS 1 GiB"


def test_the_summary_compares_prediction_and_measurement(
    prediction: Prediction, capsys: pytest.CaptureFixture[str]
) -> None:
    emit(TrainReport(make_result(make_plan(prediction, 170))), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "best: epoch 3, mAP50 0.500, mAP50-95 0.250",
        "memory: predicted 190 MiB, measured 200 MiB (-5.0 %)",
        "the requested settings would have needed 180 MiB of 170 MiB",
        "results are in runs/train/exp",
    ]


def test_retries_are_reported(prediction: Prediction, capsys: pytest.CaptureFixture[str]) -> None:
    emit(TrainReport(make_result(make_plan(prediction, 500), retries=1)), as_json=False)
    assert "1 retry because memory ran out; every step was completed\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("budget", "message"), [(190, "the requested settings might have needed 198 MiB of 190 MiB"), (500, None)]
)
def test_the_summary_says_what_the_plan_avoided(
    prediction: Prediction, budget: int, message: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    result = make_result(make_plan(prediction, budget))
    emit(TrainReport(result), as_json=False)
    shown = capsys.readouterr().out
    assert message in shown if message else "requested settings" not in shown
    emit(TrainReport(result), as_json=True)
    content = json.loads(capsys.readouterr().out)
    assert (content["requested_need"], content["budget"]) == (180 * MIB, budget * MIB)


@pytest.mark.parametrize(("saved_epoch", "content"), [(None, "there is no best.pt"), (1, "best.pt is epoch 1")])
def test_the_summary_says_if_the_best_weights_were_not_written(
    prediction: Prediction, saved_epoch: int | None, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    emit(TrainReport(make_result(make_plan(prediction, 170), saved_epoch=saved_epoch)), as_json=False)
    assert f"the weights of epoch 3 could not be written: {content}\n" in capsys.readouterr().out


def test_json_is_the_only_output(prediction: Prediction, capsys: pytest.CaptureFixture[str]) -> None:
    with ConsoleProgress(quiet=True) as progress:
        progress.log("nothing")
    emit(TrainReport(make_result(make_plan(prediction, 170), retries=1)), as_json=True)
    assert json.loads(capsys.readouterr().out)["retries"] == 1
