"""What a guarded run writes of its pace, so that its Record can be judged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.monitor import Recorder, load_record
from oomph.recovery import Guard

from .nets import plain_batch, plain_net


def build(path: Path, **options: Any) -> tuple[Recorder, Guard]:
    net, recorder = plain_net(), Recorder(path)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    return recorder, oomph.guard(
        model=net, optimizer=optimizer, recorder=recorder, **{"loss": nn.functional.mse_loss, **options}
    )


def test_a_run_that_waits_for_its_loader_is_called_starved(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder, guard = build(path)
    with recorder:
        for _ in range(20):
            time.sleep(0.02)
            guard.step(plain_batch())
    assert [finding.kind.value for finding in oomph.explain(path).findings] == ["starved"]
    assert "wait" not in load_record(path).steps[0]


def test_validation_is_no_waiting(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder, guard = build(path)
    with recorder:
        for _ in range(3):
            guard.step(plain_batch())
            guard.evaluate([plain_batch()], lambda model, piece: time.sleep(0.02))
    assert not [step["wait"] for step in load_record(path).steps if "wait" in step]


def _root(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - outputs.detach() + 0 * targets).square().sqrt().mean()  # nothing, with a gradient that is none


@pytest.mark.parametrize("clip", [1.0, lambda parameters: nn.utils.clip_grad_norm_(parameters, 1.0)])
def test_gradients_that_are_no_numbers_are_named(clip: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder, guard = build(path, loss=_root, clip=clip)
    guard._work.look = None
    with recorder:
        guard.step(plain_batch())
    assert [finding.kind.value for finding in oomph.explain(path).findings] == ["non-finite-gradients"]


def test_what_a_scaler_skips_is_no_bad_gradient(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder, guard = build(path, loss=_root, clip=1.0, scaler=torch.amp.GradScaler("cpu"))
    guard._work.look = None
    with recorder:
        guard.step(plain_batch())
        guard.step(plain_batch(), update=False)
    assert [("grad_norm" in step, step["skipped"]) for step in load_record(path).steps] == [
        (False, True),
        (False, False),
    ]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU tells late")
def test_a_gpu_tells_late_and_is_never_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path)
    net = plain_net().cuda()
    guard = oomph.guard(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        loss=nn.functional.mse_loss,
        clip=1.0,
        recorder=recorder,
    )
    batches = [tuple(one.cuda() for one in plain_batch(seed=seed)) for seed in range(60)]
    losses = []
    with recorder:
        for number, batch in enumerate(batches):
            time.sleep(0.03)
            torch.cuda.set_sync_debug_mode("default" if number < 5 else "error")
            losses.append(guard.step(batch).loss)
        torch.cuda.set_sync_debug_mode("default")
    told = [step for step in load_record(path).steps if "late" in step]
    assert len(told) > 10
    for step in told:
        assert step["loss"] == pytest.approx(float(losses[step["step"] - step["late"] - 1]))
        assert step["wait"] > 0.02
    assert "starved" in [finding.kind.value for finding in oomph.explain(path).findings]
