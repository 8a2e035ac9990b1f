"""Small jobs whose user code has lines of its own, traced once."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import oomph
from oomph.machine import Target, find_target
from oomph.prediction import Prediction, predict_trace, trace_device
from oomph.trace import Trace, trace_step

TARGET = find_target("H200")


class Block(nn.Module):
    def __init__(self, width: int, *, recompute: bool) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.recompute = recompute

    def body(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.wide(self.norm(x)))
        return self.narrow(hidden)

    def forward(self, x: Tensor) -> Tensor:
        if self.recompute:
            return x + checkpoint(self.body, x, use_reentrant=False)
        return x + self.body(x)


class Net(nn.Module):
    """A convolution and a few residual blocks, so that both pools of the allocator are used."""

    def __init__(self, *, recompute: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 4, stride=4)
        self.blocks = nn.Sequential(*(Block(64, recompute=recompute) for _ in range(3)))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.blocks(x).mean(1))


def images(count: int, size: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, size, size), torch.randint(0, 10, (count,))


def _job(optimizer: str, *, recompute: bool = False) -> oomph.Job:
    def build(model: nn.Module) -> torch.optim.Optimizer:
        if optimizer == "adamw":
            return torch.optim.AdamW(model.parameters(), 1e-3)
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    return oomph.Job(model=lambda: Net(recompute=recompute), batch=images, loss=F.cross_entropy, optimizer=build)


JOBS = {
    "sgd": (_job("sgd"), oomph.Settings(batch=16, size=128)),
    "adamw-accumulate": (_job("adamw"), oomph.Settings(batch=16, micro_batch=4, size=128, precision="amp-bf16")),
    "recompute-fp16": (_job("adamw", recompute=True), oomph.Settings(batch=8, size=128, precision="amp-fp16")),
}
ALLOCATORS = ("expandable", "default", "max_split_size_mb:20")


@functools.cache
def traced(name: str) -> Trace:
    """Return the trace of a job with stacks."""
    job, settings = JOBS[name]
    return trace_step(job, settings, trace_device(TARGET), stacks=True)


def predicted(name: str, allocator: str) -> tuple[Trace, oomph.Settings, Target, Prediction]:
    """Return a job's trace, settings and target, and its prediction."""
    settings = replace(JOBS[name][1], allocator=allocator)
    return traced(name), settings, TARGET, predict_trace(traced(name), settings, TARGET)
