"""What the guard costs when nothing fails: counted, because seconds say little on a busy machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import oomph
from oomph.recovery import Guard, _guard
from oomph.recovery._backward import differentiate

OURS = str(Path(oomph.__file__).parent)


def build(layers: int, pieces: int, loss: Callable[..., Any] = nn.functional.mse_loss) -> tuple[Guard, Any]:
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Tanh())]
    model = nn.Sequential(*parts)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    guard = oomph.guard(model=model, optimizer=optimizer, loss=loss, pieces=pieces, budget="1TiB")
    batch = torch.randn(16, 16), torch.randn(16, 16)
    for _ in range(5):
        guard.step(batch)
    return guard, batch


def calls(layers: int, pieces: int) -> int:
    """How many functions the guard's own code calls in a step, in Python and in C."""
    guard, batch = build(layers, pieces)
    count = [0]

    def note(frame: FrameType, event: str, argument: object) -> None:
        del argument
        if event in {"call", "c_call"} and frame.f_code.co_filename.startswith(OURS):
            count[0] += 1

    sys.setprofile(note)
    try:
        guard.step(batch)
    finally:
        sys.setprofile(None)
    return count[0]


def test_a_step_makes_few_calls_however_large_the_model_is() -> None:
    small, large = calls(5, 1), calls(20, 1)
    assert large <= small + 20, "something walks over modules or parameters in every step"
    assert large < 250  # it was 2,000 once


@pytest.mark.usefixtures("gpu")
def test_a_step_without_a_copy_makes_fewer() -> None:
    """As on a GPU, where the host's microseconds are all that a short step is made of."""
    assert calls(20, 1) < 200


def test_a_piece_makes_few_calls() -> None:
    assert (calls(20, 4) - calls(20, 1)) / 3 < 60


class Clock:
    """Adds up the time that is spent in other people's functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began

        return run


@pytest.mark.parametrize("pieces", [1, 4])
def test_a_step_takes_little_longer_than_its_parts(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of steps of about 2 ms, the quickest twentieth: the guard's share was a third once."""
    clock = Clock()
    guard, batch = build(20, pieces, clock.around(nn.functional.mse_loss))
    monkeypatch.setattr(guard.model, "forward", clock.around(guard.model.forward))
    monkeypatch.setattr(guard.optimizers[0], "step", clock.around(guard.optimizers[0].step))
    monkeypatch.setattr(_guard, "differentiate", clock.around(differentiate))
    shares = []
    for _ in range(100):
        clock.seconds = 0.0
        began = time.perf_counter()
        guard.step(batch)
        shares.append((time.perf_counter() - began) / clock.seconds - 1)
    assert sorted(shares)[5] < 0.3
