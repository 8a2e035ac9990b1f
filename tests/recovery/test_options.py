"""What a guard is told: wrong things are refused at once, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import oomph
from oomph.errors import MissingFile, UsageError
from oomph.recovery import Guard

from .nets import plain_batch, plain_net


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"patience": -1}, "patience is -1; it must be a number of seconds"),
        ({"patience": "15"}, "patience is '15'"),
        ({"clip": -1.0}, r"clip is -1\.0; it must be a norm above 0"),
        ({"clip": float("nan")}, "clip is nan"),
        ({"clip": "1.0"}, r"clip is '1\.0'"),
        ({"scaler": True}, r"scaler is True; pass a torch\.amp\.GradScaler"),
        ({"scheduler": 0.1}, r"scheduler is 0\.1; pass an object with step"),
        ({"device": "gpu"}, "device is 'gpu'; write \"cuda\""),
        ({"device": 1.5}, r"device is 1\.5"),
        ({"optimizer": None}, "optimizer is None; pass a torch.optim.Optimizer"),
        ({"optimizer": []}, "optimizer is an empty list"),
        ({"optimizer": [None]}, "optimizer is None"),
        ({"model": 7}, "model is a int; pass the torch.nn.Module"),
    ],
)
def test_what_is_wrong_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    net = plain_net()
    given: dict[str, Any] = {"model": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1)}
    with pytest.raises(UsageError, match=words):
        oomph.guard(**{**given, "loss": nn.functional.mse_loss, **options})


def test_a_scheduler_that_wants_a_score_is_refused() -> None:
    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(UsageError, match=r"ReduceLROnPlateau wants to be told something.*after validation"):
        oomph.guard(model=net, optimizer=optimizer, scheduler=ReduceLROnPlateau(optimizer))


def test_a_checkpoint_that_could_not_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(MissingFile, match="no such folder; make it first"):
        oomph.guard(model=net, optimizer=optimizer, checkpoint=tmp_path / "nowhere" / "last.pt")
    with pytest.raises(MissingFile, match="is a folder; name a file in it"):
        oomph.guard(model=net, optimizer=optimizer, checkpoint=tmp_path)


def test_an_empty_batch_is_refused() -> None:
    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, pieces=4)
    with pytest.raises(UsageError, match="the batch has no samples; leave empty batches out"):
        guard.step((torch.randn(0, 4), torch.randn(0, 2)))


def test_a_state_without_its_parts_is_refused() -> None:
    net = plain_net()
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    with pytest.raises(UsageError, match="the state has no 'model'; pass what state_dict"):
        guard.load_state_dict({"guard": {"version": 1}})
    with pytest.raises(UsageError, match="the state has no 'steps'"):
        guard.load_state_dict({**guard.state_dict(), "guard": {"version": 1}})


def test_each_optimizer_can_have_a_scheduler() -> None:
    def build() -> tuple[Guard, list[StepLR]]:
        net = plain_net()
        optimizers = [torch.optim.SGD(part.parameters(), lr=0.4) for part in (net[0], net[2])]  # type: ignore[index]
        schedulers = [StepLR(one, 1, factor) for one, factor in zip(optimizers, (0.5, 0.25), strict=True)]
        guard = oomph.guard(model=net, optimizer=optimizers, loss=nn.functional.mse_loss, scheduler=schedulers)
        return guard, schedulers

    def rates(schedulers: list[StepLR]) -> list[float]:
        return [float(one.get_last_lr()[0]) for one in schedulers]

    guard, schedulers = build()
    guard.step(plain_batch())
    assert rates(schedulers) == [0.2, 0.1]
    other, resumed = build()
    other.load_state_dict(guard.state_dict())
    other.step(plain_batch())
    assert rates(resumed) == [0.1, 0.025]
