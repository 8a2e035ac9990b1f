"""A small network whose plans take little time."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

import oomph
from oomph.machine import find_target
from oomph.planner import JobPredictor, PlanRequest
from oomph.settings import Settings
from oomph.units import MIB

H200 = find_target("H200")
SETTINGS = Settings(batch=64, size=256)


class Block(nn.Module):
    """A residual block; GroupNorm, so that any micro-batch is possible."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a feature map of the input's shape."""
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


def build() -> nn.Module:
    """Build the network: large feature maps first, small ones later."""
    stages = [nn.Sequential(Block(16), Block(16)), nn.Conv2d(16, 32, 3, 2, 1), nn.Sequential(Block(32), Block(32))]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )


def batch(samples: int, size: object) -> tuple[Tensor, Tensor]:
    """Return images and classes."""
    assert isinstance(size, int)
    return torch.randn(samples, 3, size, size), torch.randint(0, 10, (samples,))


JOB = oomph.Job(
    model=build,
    batch=batch,
    loss=nn.functional.cross_entropy,
    optimizer=lambda model: torch.optim.AdamW(model.parameters(), 1e-3),
)


@functools.cache
def predictor() -> JobPredictor:
    """Return predictions that all tests share."""
    return JobPredictor(JOB, H200)


def request(mib: float, settings: Settings = SETTINGS, allow: tuple[str, ...] = ()) -> PlanRequest:
    """Return a request with a budget of so many MiB beside the CUDA context."""
    return PlanRequest(settings, H200, int(mib * MIB) + H200.outside[-1], allow)
