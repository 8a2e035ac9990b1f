"""Small things to train, and everything about them that must be equal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import oomph
from oomph.recovery import Guard


class Noisy(nn.Module):
    """Convolution, BatchNorm, dropout, a buffer of its own, and random numbers from everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, 2)
        self.register_buffer("calls", torch.zeros(()))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        chance = random.random() + np.random.rand()  # noqa: S311  the states of both are what this is about
        x = self.drop(torch.relu(self.norm(self.conv(x)))) * (1 + 0.01 * chance)
        found: Tensor = self.head(x.flatten(1))
        return found


def plain_net(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).to(dtype)


def plain_batch(samples: int = 8, seed: int = 1, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(samples, 4, generator=generator, dtype=dtype),
        torch.randn(samples, 2, generator=generator, dtype=dtype),
    )


class Rig:
    """A noisy net with everything that a loop may have, always made the same way."""

    def __init__(self, *, adam: bool = True, scaled: bool = False, **options: Any) -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.net = Noisy()
        parameters = list(self.net.parameters())
        groups: list[dict[str, Any]] = [{"params": parameters[:3]}, {"params": parameters[3:], "lr": 0.05}]
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.AdamW(groups, lr=0.01)
            if adam
            else torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
        )
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.9)
        self.ema = AveragedModel(self.net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2) if scaled else None
        self.guard: Guard = oomph.guard(
            model=self.net,
            optimizer=self.optimizer,
            loss=nn.functional.mse_loss,
            scheduler=self.scheduler,
            scaler=self.scaler,
            clip_grad_norm=0.5,
            ema=self.ema,
            **options,
        )

    def batches(self, count: int = 2, samples: int = 8) -> list[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(7)
        return [
            (torch.randn(samples, 1, 4, 4, generator=generator), torch.randn(samples, 2, generator=generator))
            for _ in range(count)
        ]

    def state(self) -> dict[str, Any]:
        return self.guard.state_dict()


def differences(one: Any, other: Any) -> list[str]:
    """Where two states are not equal, bit for bit, but for what was learnt of memory."""
    return list(_differences(one, other))


def _differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            if key not in {"retry_policy", "optimizer_step"}:
                yield from _differences(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, f"{path}.{index}")
    elif isinstance(one, Tensor) and isinstance(other, Tensor):
        if not torch.equal(one, other):
            yield f"{path}: {one} and {other}"
    elif one != other:
        yield f"{path}: {one} and {other}"
