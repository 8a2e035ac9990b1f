"""Durations, waits and losses of guarded steps in the Record."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.monitor import load_record, step_timer
from oomph.monitor._step_timer import HostStepTimer, NullStepTimer
from oomph.recovery import Guard


def recorded_guard(path: Path, **options: Any) -> tuple[oomph.Recorder, Guard]:
    torch.manual_seed(0)
    net, recorder = nn.Linear(4, 2), oomph.Recorder(path)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    options = {"loss": nn.functional.mse_loss, **options}
    return recorder, oomph.guard(model=net, optimizer=optimizer, recorder=recorder, **options)


def random_batch() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 4), torch.randn(8, 2)


def finding_kinds(path: Path) -> list[str]:
    return [finding.kind.value for finding in oomph.explain(path).findings]


@pytest.mark.medium
def test_a_run_that_waits_for_its_loader_is_diagnosed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder, guard = recorded_guard(path)
    with recorder:
        for _ in range(20):
            time.sleep(0.02)
            guard.step(random_batch())
    assert finding_kinds(path) == ["starved"]
    assert "wait" not in load_record(path).steps[0]


def test_validation_is_not_a_wait_for_data(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder, guard = recorded_guard(path)
    with recorder:
        for _ in range(3):
            guard.step(random_batch())
            guard.evaluate([random_batch()], lambda model, batch: time.sleep(0.02))
    assert not [step["wait"] for step in load_record(path).steps if "wait" in step]


def loss_with_nan_gradients(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - outputs.detach() + 0 * targets).square().sqrt().mean()


@pytest.mark.parametrize("clip", [1.0, lambda parameters: nn.utils.clip_grad_norm_(parameters, 1.0)])
def test_nan_gradients_are_diagnosed(clip: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder, guard = recorded_guard(path, loss=loss_with_nan_gradients, clip_grad_norm=clip)
    with recorder:
        guard.step(random_batch())
    assert finding_kinds(path) == ["non-finite-gradients"]


def test_gradients_of_a_skipped_update_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    scaler = torch.amp.GradScaler("cpu")
    recorder, guard = recorded_guard(path, loss=loss_with_nan_gradients, clip_grad_norm=1.0, scaler=scaler)
    with recorder:
        guard.step(random_batch())
        guard.step(random_batch(), update=False)
    steps = [("grad_norm" in step, step["skipped"]) for step in load_record(path).steps]
    assert steps == [(False, True), (False, False)]


def test_a_host_timer_measures_the_wait_between_two_steps() -> None:
    timer = HostStepTimer()
    timer.start(time.perf_counter())
    fields = timer.stop(1, torch.tensor(2.0), torch.tensor(3.0))
    assert fields == {"wait": None, "loss": 2.0, "grad_norm": 3.0}
    timer.start(time.perf_counter() + 5)
    fields = timer.stop(2, torch.tensor(2.0), None)
    assert 5 <= fields["wait"] < 6
    assert fields["grad_norm"] is None
    timer.pause()
    timer.start(time.perf_counter() + 5)
    assert timer.stop(3, torch.tensor(2.0), 0.5) == {"wait": None, "loss": 2.0, "grad_norm": 0.5}


def test_only_devices_that_can_be_timed_are_timed() -> None:
    assert isinstance(step_timer(torch.device("cpu")), HostStepTimer)
    for timer in (step_timer(None), step_timer(torch.device("meta"))):
        assert isinstance(timer, NullStepTimer)
        timer.start(0.0)
        timer.pause()
        assert timer.stop(1, torch.tensor(1.0), None) == {}


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_timed_without_waiting_for_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder = oomph.Recorder(path)
    net = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loss = nn.functional.mse_loss
    guard = oomph.guard(model=net, optimizer=optimizer, loss=loss, clip_grad_norm=1.0, recorder=recorder)
    batches = [tuple(tensor.cuda() for tensor in random_batch()) for _ in range(60)]
    losses = []
    with recorder:
        for number, batch in enumerate(batches):
            time.sleep(0.03)
            torch.cuda.set_sync_debug_mode("default" if number < 5 else "error")
            losses.append(guard.step(batch).loss)
        torch.cuda.set_sync_debug_mode("default")
    timed = [step for step in load_record(path).steps if "late" in step]
    assert len(timed) > 10
    for step in timed:
        assert step["loss"] == pytest.approx(float(losses[step["step"] - step["late"] - 1]))
        assert step["wait"] > 0.02
    assert "starved" in finding_kinds(path)
