"""A Job whose table is built in seconds, and positions in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from oomph.job import Job
from oomph.planner import PredictionTable, TableChoice, TablePosition


def images(count: int, size: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, size, size), torch.zeros(count, dtype=torch.long)


def classifier() -> nn.Module:
    blocks = [
        nn.Sequential(nn.Conv2d(ins, outs, 3, padding=1), nn.BatchNorm2d(outs), nn.ReLU(), nn.MaxPool2d(2))
        for ins, outs in ((3, 128), (128, 256))
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def classifier_job(optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd) -> Job:
    return Job(model=classifier, batch=images, loss=nn.functional.cross_entropy, optimizer=optimizer)


def random_position(table: PredictionTable, rng: random.Random) -> TablePosition:
    """Return a position that the page offers."""

    def choose(choices: tuple[TableChoice, ...]) -> str:
        return rng.choice([choice.name for choice in choices if not choice.problem])

    batch = rng.choice(table.samples.values)
    return TablePosition(
        device=rng.choice(table.devices).name,
        batch=batch,
        micro_batch=rng.choice(table.micro_batches(batch)),
        size=rng.choice(table.sizes.values),
        precision=choose(table.precisions),
        checkpointing=choose(table.checkpointings),
        optimizer=choose(table.optimizers),
    )
