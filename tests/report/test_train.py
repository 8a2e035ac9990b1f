from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch import nn

import oomph
from oomph.detect import Outcome
from oomph.planner import Plan, plan
from oomph.prediction import Estimate, Origin, Prediction
from oomph.report import TrainReport, TrainTeller, emit
from oomph.settings import Settings
from oomph.units import MIB

JOB = oomph.Job(
    model=lambda: nn.Linear(4, 4),
    batch=lambda n, _: (torch.randn(n, 4), torch.randn(n, 4)),
    loss=nn.functional.mse_loss,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
)
FACTS = {
    "loss": 1.0,
    "micro_batches": 1,
    "memory": None,
    "images_per_second": 12.0,
    "host": 1 << 30,
    "epochs": 100,
    "seconds_left": 4000.0,
}
BEST = {"epoch": 3, "map50": 0.5, "map50_95": 0.25}


def made(budget: int) -> Plan:
    real = oomph.predict(JOB, Settings(batch=1), "H200")

    def predict(settings: Settings) -> Prediction:
        need = 100.0 * MIB + 10 * MIB * max(settings.micro_batch_sizes)
        return dataclasses.replace(real, device=Estimate(need, need, need * 1.1, Origin.TRACED))

    return plan(Settings(batch=8, size=640), budget, predict)


def test_the_plan_says_what_was_asked_and_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainTeller() as teller:
        teller.planned(made(170 * MIB))
    shown = capsys.readouterr().out
    assert "asked: batch 8 at 640, fp32: needs 180 MiB (up to 198 MiB) of 170 MiB" in shown
    assert "the batch of 8 is split into 2 micro-batches of at most 4" in shown
    assert "\x1b" not in shown


def test_a_plan_says_what_was_taken_off_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainTeller() as teller:
        teller.planned(dataclasses.replace(made(170 * MIB), reserved=30 * MIB))
    assert "of 170 MiB (200 MiB less what waiting batches and the guard need)" in capsys.readouterr().out


def test_a_plan_that_fits_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainTeller() as teller:
        teller.planned(made(500 * MIB))
    assert "it fits as asked" in capsys.readouterr().out


def test_an_epoch_is_one_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainTeller() as teller:
        teller.stepped(0, 1, 4, FACTS)
        teller.ended_epoch({"epoch": 1, "loss": 1.0, "images_per_second": 10.0, "memory": 10 * MIB, **BEST})
        teller.ended_epoch({"epoch": 2, "loss": 1.0, "images_per_second": None, "memory": 10 * MIB})
    shown = capsys.readouterr().out
    assert shown.count("\n") == 2
    assert "epoch 2: loss 1.000  10 MiB at most" in shown
    assert "mAP50 0.500" in shown


def test_a_document_is_all_that_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    done = Outcome("runs/train/exp", 3, BEST, made(170 * MIB), 200 * MIB, 190 * MIB, 1)
    with TrainTeller(quiet=True) as teller:
        teller.said("nothing")
    emit(TrainReport(done), as_json=True)
    shown = capsys.readouterr().out
    assert shown.startswith("{")
    assert '"retries": 1' in shown


def test_the_end_compares_predicted_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    emit(TrainReport(Outcome("runs/train/exp", 3, BEST, made(170 * MIB), 200 * MIB, 190 * MIB, 0, 3)), as_json=False)
    shown = capsys.readouterr().out
    assert "could not be written" not in shown
    assert "best: epoch 3, mAP50 0.500, mAP50-95 0.250" in shown
    assert "predicted 190 MiB, measured 200 MiB (-5.0 %)" in shown
    assert "as asked it would have needed 180 MiB, and there were 170 MiB" in shown


@pytest.mark.parametrize(
    ("budget", "words"), [(190, "as asked it might have needed 198 MiB, and there were 190 MiB"), (500, None)]
)
def test_the_end_says_what_the_plan_was_good_for(
    budget: int, words: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Outcome("runs/train/exp", 3, BEST, made(budget * MIB), 200 * MIB, 190 * MIB, 0, 3)
    emit(TrainReport(done), as_json=False)
    shown = capsys.readouterr().out
    assert words in shown if words else "as asked" not in shown
    emit(TrainReport(done), as_json=True)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["asked_needs"], facts["budget"]) == (180 * MIB, budget * MIB)


@pytest.mark.parametrize(("kept", "words"), [(None, "there is no best.pt"), (1, "best.pt holds epoch 1")])
def test_the_end_says_what_best_pt_really_holds(
    kept: int | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    emit(TrainReport(Outcome("runs/train/exp", 3, BEST, made(170 * MIB), 200 * MIB, 190 * MIB, 0, kept)), as_json=False)
    assert f"its weights could not be written: {words}\n" in capsys.readouterr().out


def test_what_is_counted_has_its_own_total() -> None:
    with TrainTeller() as teller:
        teller.counted("train: headers of images", 8, 8)
        teller.counted("plan: settings predicted", 3, None)
        (task,) = teller._bar.tasks
        assert (task.fields["what"], task.completed, task.total) == ("plan: settings predicted", 3, None)
        teller.stepped(0, 1, 4, FACTS)
        (task,) = teller._bar.tasks
        assert (task.completed, task.total) == (1, 4)


def test_the_bar_says_how_far_the_whole_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    teller = TrainTeller()
    with teller:
        teller.stepped(2, 1, 4, FACTS)
    task = teller._bar.tasks[0]
    assert task.fields["what"] == "epoch 3/100"
    assert task.fields["facts"].startswith("1 h 07 min left  loss 1.000  12 images/s  1 micro-batch  host")
