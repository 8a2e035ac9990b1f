from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import StepLR

from oomph.script._accumulation import _MARK, AccumulatedSteps


@pytest.fixture
def model() -> Iterator[nn.Module]:
    """Yield a weight of 0, trained with steps that accumulate; the gradient of its loss is 1."""
    with AccumulatedSteps().installed():
        layer = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(layer.weight)
        yield layer
    assert not hasattr(SGD.step, _MARK)


def train(model: nn.Module, optimizer: Optimizer) -> float:
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    return next(model.parameters()).item()


def test_every_second_step_updates_with_both_gradients(model: nn.Module) -> None:
    optimizer = SGD(model.parameters(), lr=1.0)
    weights = []
    for _ in range(4):
        weights.append(train(model, optimizer))
        optimizer.zero_grad()
    assert weights == [0, -2, -2, -4]


@pytest.mark.parametrize("clears_model", [True, False])
def test_gradients_may_be_cleared_before_a_batch(*, clears_model: bool, model: nn.Module) -> None:
    optimizer = SGD(model.parameters(), lr=1.0)
    weights = []
    for _ in range(4):
        (model if clears_model else optimizer).zero_grad()
        weights.append(train(model, optimizer))
    assert weights == [0, -2, -2, -4]


def test_closures_run_at_every_step(model: nn.Module) -> None:
    optimizer = SGD(model.parameters(), lr=1.0)
    losses = []

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 1)).sum()
        loss.backward()
        losses.append(loss.item())
        return losses[-1]

    returned = [optimizer.step(closure) for _ in range(4)]
    assert returned == losses == [0, 0, -2, -2]
    assert next(model.parameters()).item() == -4


def test_optimizers_alternate_each_for_itself(model: nn.Module) -> None:
    other = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(other.weight)
    first, second = SGD(model.parameters(), lr=1.0), SGD(other.parameters(), lr=1.0)
    assert [train(model, first), train(other, second), train(model, first), train(other, second)] == [0, 0, -2, -2]
    other.zero_grad()
    assert other.weight.grad is None


class CountingSGD(SGD):
    """Calls the step of its base, which is replaced, too."""

    calls = 0

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Count a step and take it."""
        assert closure is None
        self.calls += 1
        super().step()


def test_subclass_takes_the_step_of_its_base(model: nn.Module) -> None:
    SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    optimizer = CountingSGD(model.parameters(), lr=1.0)
    assert [train(model, optimizer) for _ in range(4)] == [0, -2, -2, -6]  # nothing clears gradients
    assert optimizer.calls == 2


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_scheduler_that_wraps_the_step(model: nn.Module) -> None:
    optimizer = SGD(model.parameters(), lr=1.0)
    StepLR(optimizer, 1)
    assert [train(model, optimizer), train(model, optimizer)] == [0, -2]
