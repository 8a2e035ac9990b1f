"""Jobs and metrics for sweeps in tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import oomph


def net() -> nn.Module:
    layers = (nn.Conv2d(3, 32, 3, padding=1), nn.Tanh(), nn.Conv2d(32, 32, 3, padding=1), nn.Tanh())
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 2))


def make_batch(n: int, size: Any) -> tuple[Tensor, Tensor]:
    height, width = size if isinstance(size, tuple) else (size, size)
    labels = torch.randint(0, 2, (n,))
    return torch.rand(n, 3, height, width) + labels.view(n, 1, 1, 1), labels


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def loss_job() -> oomph.Job:
    return oomph.Job(net, make_batch, nn.functional.cross_entropy, sgd)


def step_job() -> oomph.Job:
    return oomph.Job(net, make_batch, optimizer=sgd, step=step)


def output(model: nn.Module, size: Any) -> float:
    assert not model.training
    assert not torch.is_grad_enabled()
    height, width = size if isinstance(size, tuple) else (size, size)
    return float(model(torch.ones(1, 3, height, width))[0, 0])


def several(model: nn.Module, size: Any) -> dict[str, Any]:
    return {"output": output(model, size), "weights": next(model.parameters()).abs().sum()}


def broken(model: nn.Module, size: Any) -> float:
    del model
    raise ValueError(f"no images of size {size}")
