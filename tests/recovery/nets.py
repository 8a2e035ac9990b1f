"""Small models to train, and a comparison of everything that two runs must have in common."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import oomph
from oomph.recovery import Guard


def plain_net(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).to(dtype)


def plain_batch(samples: int = 8, seed: int = 1, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(samples, 4, generator=generator, dtype=dtype),
        torch.randn(samples, 2, generator=generator, dtype=dtype),
    )


def plain_guard(loss: Callable[..., Any] | None = nn.functional.mse_loss, **options: Any) -> Guard:
    """Return the guard of a plain net with SGD."""
    net = plain_net()
    return oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=loss, **options)


def guard_of(model: nn.Module, **options: Any) -> Guard:
    """Return the guard of a model with SGD and a mean squared error."""
    loss = None if "forward" in options else nn.functional.mse_loss
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return oomph.guard(**{"model": model, "optimizer": optimizer, "loss": loss, **options})


class NoisyNet(nn.Module):
    """Convolution, BatchNorm, dropout, a counter in a buffer, and random numbers of Python, NumPy and torch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(2)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, 2, bias=False)
        self.register_buffer("calls", torch.zeros(()))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        noise = random.random() + np.random.rand()  # noqa: S311  the test is about their states
        x = self.drop(torch.relu(self.norm(self.conv(x)))) * (1 + 0.01 * noise)
        return self.head(x.flatten(1))


class Rig:
    """A noisy net with an optimizer, scheduler, EMA, gradient clipping and optionally a scaler, in a fixed state.

    Args:
        adam: use AdamW, otherwise SGD with Nesterov momentum.
        foreach: the optimizer's `foreach`.
        scaled: use a GradScaler.
        options: passed to the guard.
    """

    def __init__(self, *, adam: bool = True, foreach: bool | None = None, scaled: bool = False, **options: Any) -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.net = NoisyNet()
        parameters = list(self.net.parameters())
        groups: list[dict[str, Any]] = [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.05}]
        if adam:
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(groups, lr=0.01, foreach=foreach)
        else:
            groups[0]["weight_decay"] = 0.01  # without it, the multi-tensor update writes to the gradients
            self.optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, foreach=foreach)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.9)
        self.ema = AveragedModel(self.net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=1) if scaled else None
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


def cloned(state: Any) -> Any:
    """Return a copy of a state: `state_dict()` and `load_state_dict()` share tensors with the guard."""
    if isinstance(state, dict):
        return {name: cloned(value) for name, value in state.items()}
    if isinstance(state, list):
        return [cloned(value) for value in state]
    return state.detach().clone() if isinstance(state, Tensor) else state


def differences(state: Any, expected: Any) -> list[str]:
    """Return the places where two states differ in any bit, except in what the guard learned about memory."""
    return list(_differences(state, expected))


def _differences(state: Any, expected: Any, path: str = "") -> Iterator[str]:
    if isinstance(state, dict) and isinstance(expected, dict) and state.keys() == expected.keys():
        for key in state:
            if key not in {"retry_policy", "optimizer_step"}:
                yield from _differences(state[key], expected[key], f"{path}.{key}")
    elif isinstance(state, list) and isinstance(expected, list) and len(state) == len(expected):
        for index, pair in enumerate(zip(state, expected, strict=True)):
            yield from _differences(*pair, f"{path}.{index}")
    elif isinstance(state, Tensor) and isinstance(expected, Tensor):
        if not torch.equal(state, expected):
            yield f"{path}: {state} instead of {expected}"
    elif state != expected:
        yield f"{path}: {state} instead of {expected}"
