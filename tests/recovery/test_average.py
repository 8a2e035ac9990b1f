"""A resumed run has its average, however that keeps itself."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.recovery import Guard

from .nets import plain_batch, plain_net


class InDict:
    """Tensors by name, an array of squares, and a list of numbers."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: one.detach().clone() for name, one in model.named_parameters()}
        self.squares = np.zeros(2)
        self.rates: list[float] = []

    def update(self, model: nn.Module) -> None:
        self.rates.append(0.1 * len(self.rates) / (1 + len(self.rates)))
        self.squares += self.rates[-1] ** 2
        for name, one in model.named_parameters():
            self.shadow[name].lerp_(one.detach(), self.rates[-1] + float(self.squares[0]))

    def weights(self) -> list[Tensor]:
        return list(self.shadow.values())


class WithModel:
    """A module beside the model itself, and a counter that the rate depends on."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.ema, self.updates = model, copy.deepcopy(model), 0

    def update(self, model: nn.Module) -> None:
        self.updates += 1
        for one, other in zip(self.ema.parameters(), model.parameters(), strict=True):
            one.data.lerp_(other.detach(), math.exp(-self.updates / 3))

    def weights(self) -> list[Tensor]:
        return [one.detach() for one in self.ema.parameters()]


class Inner:
    __slots__ = ("count", "shadow")

    def __init__(self, shadow: tuple[Tensor, ...]) -> None:
        self.shadow, self.count = shadow, 0


class InObject:
    """Made with the first update, in slots of another object and a tuple."""

    def __init__(self, model: nn.Module) -> None:
        self.inner = Inner(tuple(one.detach().clone() for one in model.parameters()))
        self.first: list[Tensor] | None = None

    def update(self, model: nn.Module) -> None:
        if self.first is None:
            self.first = [one.detach().clone() for one in model.parameters()]
        self.inner.count += 1
        for one, first, other in zip(self.inner.shadow, self.first, model.parameters(), strict=True):
            one.lerp_(other.detach() + first, 1 / self.inner.count)

    def weights(self) -> list[Tensor]:
        return list(self.inner.shadow)


def build(kind: Callable[[nn.Module], Any]) -> tuple[Guard, Any]:
    net = plain_net()
    average = kind(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, ema=average), average


@pytest.mark.parametrize("kind", [InDict, WithModel, InObject])
def test_an_average_goes_on_bit_for_bit(kind: Callable[[nn.Module], Any], tmp_path: Path) -> None:
    guard, average = build(kind)
    for seed in range(3):
        guard.step(plain_batch(seed=seed))
    guard.save(tmp_path / "run.pt")
    other, resumed = build(kind)
    other.load(tmp_path / "run.pt")
    for one in (guard, other):
        for seed in range(3, 6):
            one.step(plain_batch(seed=seed))
    for one, same in zip(average.weights(), resumed.weights(), strict=True):
        assert torch.equal(one, same)


def test_the_state_of_another_average_is_refused() -> None:
    guard, _ = build(WithModel)
    state = guard.state_dict()
    other, average = build(WithModel)
    average.ema = 7
    with pytest.raises(UsageError, match=r"has a int where a module was saved \('ema'\)"):
        other.load_state_dict(state)
    whole, _ = build(InDict)
    with pytest.raises(UsageError, match="no InDict's"):
        whole.load_state_dict({**state, "ema": {"weight": torch.zeros(1)}})
