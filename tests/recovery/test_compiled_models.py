"""Compiled models stay compiled under the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph

from .faults import CUDA
from .nets import plain_batch

# torch's own compiler looks at gradients that aren't there.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Net(nn.Module):
    """A class of its own: torch compiles none of its own containers by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.body, self.second = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(self.body(self.first(x)))
        return found


class Counter:
    """A backend that runs what it is given as it is, and counts."""

    def __init__(self) -> None:
        self.made = self.runs = 0

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        del inputs
        self.made += 1

        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


@pytest.fixture
def backend() -> Iterator[Counter]:
    torch._dynamo.reset()
    yield Counter()
    torch._dynamo.reset()


def _whole(net: nn.Module, backend: Counter) -> dict[str, Any]:
    return {"model": torch.compile(net, backend=backend), "loss": nn.functional.mse_loss}


def _in_place(net: nn.Module, backend: Counter) -> dict[str, Any]:
    net.compile(backend=backend)
    return {"model": net, "loss": nn.functional.mse_loss}


def _part(net: nn.Module, backend: Counter) -> dict[str, Any]:
    net.body = torch.compile(net.body, backend=backend)  # type: ignore[assignment, arg-type]
    return {"model": net, "loss": nn.functional.mse_loss}


def _function(net: nn.Module, backend: Counter) -> dict[str, Any]:
    def forward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    return {"model": net, "forward": torch.compile(forward, backend=backend)}


@pytest.mark.parametrize("way", [_whole, _in_place, _part, _function])
@pytest.mark.parametrize("budget", [None, "1TiB"])
def test_a_compiled_model_runs_compiled_in_every_step(way: Any, budget: str | None, backend: Counter) -> None:
    net = Net()
    guard = oomph.guard(optimizer=torch.optim.SGD(net.parameters(), lr=0.1), budget=budget, **way(net, backend))
    runs = []
    for _ in range(6):  # with a look before each module in the first three
        guard.step(plain_batch())
        runs.append(backend.runs)
    assert runs == [1, 2, 3, 4, 5, 6]
    assert guard.evaluate([plain_batch()], lambda model, piece: len(model(piece[0]))) == [8]
    assert backend.runs == 6 + (way is not _function), "validation too"
    assert backend.made <= 3, "a step, a step without the look, validation"


def test_a_model_that_is_first_compiled_in_a_retry_runs_compiled_ever_after(backend: Counter) -> None:
    net = Net()
    guard = oomph.guard(optimizer=torch.optim.SGD(net.parameters(), lr=0.1), calm=100, **_whole(net, backend))
    calls = []

    def forward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        calls.append(1)
        if len(calls) == 1:
            raise torch.OutOfMemoryError(CUDA)
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    runs = []
    for _ in range(4):
        assert guard.step(plain_batch(), forward=forward).pieces == 2
        runs.append(backend.runs)
    assert runs == [2, 4, 6, 8]


@pytest.mark.filterwarnings("ignore:.torch.jit")  # torch means to take it away one day
def test_scripted_models_can_be_guarded() -> None:
    torch.manual_seed(0)
    net: Any = torch.jit.script(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
    short = [True]

    def forward(model: nn.Module, piece: Any) -> Tensor:
        outputs = model(piece[0])
        if short:
            short.clear()
            raise torch.OutOfMemoryError(CUDA)
        return nn.functional.mse_loss(outputs, piece[1])

    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), forward=forward)
    assert guard.step(plain_batch()).pieces == 2
    assert float(dict(net.named_buffers())["1.num_batches_tracked"]) == 2
