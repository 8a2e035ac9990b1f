"""Wrong options are rejected at the start, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import oomph
from oomph.errors import MissingFile, UsageError
from oomph.recovery import Guard

from .nets import guard_of, plain_batch, plain_guard, plain_net


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"micro_batch": 0}, "micro_batch is 0; it must be a whole number of at least 1"),
        ({"micro_batch": True}, "micro_batch is True"),
        ({"cooldown_steps": 2.5}, r"cooldown_steps is 2\.5"),
        ({"rank_timeout": -1}, "rank_timeout is -1; it must be a number of seconds"),
        ({"rank_timeout": "15"}, "rank_timeout is '15'"),
        ({"clip_grad_norm": -1.0}, r"clip_grad_norm is -1\.0; it must be a norm above 0"),
        ({"clip_grad_norm": float("nan")}, "clip_grad_norm is nan"),
        ({"clip_grad_norm": "1.0"}, r"clip_grad_norm is '1\.0'"),
        ({"scaler": True}, r"scaler is True; pass a torch\.amp\.GradScaler"),
        ({"scheduler": 0.1}, r"scheduler is 0\.1; pass an object with step"),
        ({"precision": "fp8"}, "precision is 'fp8'; use amp-bf16 or amp-fp16"),
        ({"allow": "speed"}, "allow contains 'speed'; it may contain precision and size"),
        ({"allow": ("size",)}, "resize= belong together"),
        ({"resize": lambda batch: batch}, "resize= belong together"),
        ({"snapshot": True}, "snapshot is True; pass a folder for the files"),
        ({"nvtx": "on"}, "nvtx is 'on'; pass True or False"),
        ({"device": "gpu"}, "device is 'gpu'; use \"cuda\""),
        ({"device": 1.5}, r"device is 1\.5"),
        ({"budget": "lots"}, "lots"),
        ({"optimizer": None}, "optimizer is None; pass a torch.optim.Optimizer"),
        ({"optimizer": []}, "optimizer is empty"),
        ({"optimizer": [None]}, "optimizer is None"),
        ({"model": 7}, r"model is a int; pass the torch\.nn\.Module"),
        ({"model": torch.nn.Tanh()}, "the model has no parameters"),
        ({"ema": 7}, "ema is a function"),
        ({"ema": torch.nn.Parameter(torch.ones(1))}, r"ema is a Parameter; pass an object with update\(model\)"),
        ({"ema": lambda model: model}, "ema is a function"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value[:20],
)
def test_wrong_options_are_rejected_by_name(options: dict[str, Any], message: str) -> None:
    net = plain_net()
    required = {"model": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1)}
    with pytest.raises(UsageError, match=message):
        oomph.guard(**{**required, **options})


def test_unknown_options_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="schedular"):
        plain_guard(schedular=1)


def test_a_scheduler_that_requires_a_metric_is_rejected() -> None:
    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(UsageError, match=r"ReduceLROnPlateau requires an argument.*after validation"):
        guard_of(net, optimizer=optimizer, scheduler=ReduceLROnPlateau(optimizer))


def test_a_checkpoint_that_could_not_be_written_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="is not a folder; create it first"):
        plain_guard(checkpoint=tmp_path / "nowhere" / "last.pt")
    with pytest.raises(MissingFile, match="is a folder; name a file in it"):
        plain_guard(checkpoint=tmp_path)


def test_each_optimizer_can_have_a_scheduler() -> None:
    def build() -> tuple[Guard, list[StepLR]]:
        net = plain_net()
        optimizers = [torch.optim.SGD(layer.parameters(), lr=0.4) for layer in (net[0], net[2])]
        schedulers = [StepLR(optimizer, 1, factor) for optimizer, factor in zip(optimizers, (0.5, 0.25), strict=True)]
        return guard_of(net, optimizer=optimizers, scheduler=schedulers), schedulers

    def rates(schedulers: list[StepLR]) -> list[float]:
        return [float(scheduler.get_last_lr()[0]) for scheduler in schedulers]

    guard, schedulers = build()
    guard.step(plain_batch())
    assert rates(schedulers) == [0.2, 0.1]
    other, resumed = build()
    other.load_state_dict(guard.state_dict())
    other.step(plain_batch())
    assert rates(resumed) == [0.1, 0.025]
