"""Compiled models stay compiled under the guard, and scripted ones can be guarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph

from .faults import CUDA_OOM, failing_forward, in_split_check
from .nets import guard_of, plain_batch

# torch's compiler reads gradients of tensors that aren't leaves.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Net(nn.Module):
    """A user-defined class: torch doesn't compile its containers in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.body, self.second = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.body(self.first(x)))


class CountingBackend:
    """Runs graphs unchanged, and counts compilations and runs, except those of the split check."""

    def __init__(self) -> None:
        self.compilations = self.runs = 0

    def __call__(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        del inputs
        self.compilations += not in_split_check()

        def run(*args: Any) -> Any:
            self.runs += not in_split_check()
            return graph.forward(*args)

        return run


@pytest.fixture
def backend() -> Iterator[CountingBackend]:
    torch._dynamo.reset()
    yield CountingBackend()
    torch._dynamo.reset()


def compile_model(net: nn.Module, backend: CountingBackend) -> dict[str, Any]:
    return {"model": torch.compile(net, backend=backend), "loss": nn.functional.mse_loss}


def compile_in_place(net: nn.Module, backend: CountingBackend) -> dict[str, Any]:
    net.compile(backend=backend)
    return {"model": net, "loss": nn.functional.mse_loss}


def compile_part(net: nn.Module, backend: CountingBackend) -> dict[str, Any]:
    net.body = torch.compile(net.body, backend=backend)  # type: ignore[assignment, arg-type]
    return {"model": net, "loss": nn.functional.mse_loss}


def compile_forward(net: nn.Module, backend: CountingBackend) -> dict[str, Any]:
    def forward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    return {"model": net, "forward": torch.compile(forward, backend=backend)}


@pytest.mark.medium
@pytest.mark.parametrize("compiled", [compile_model, compile_in_place, compile_part, compile_forward])
@pytest.mark.parametrize("budget", [None, "1TiB"])
def test_a_compiled_model_runs_compiled_in_every_step(
    compiled: Any, budget: str | None, backend: CountingBackend
) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    guard = oomph.guard(optimizer=optimizer, budget=budget, **compiled(net, backend))
    runs = []
    for _ in range(6):  # modules are watched in the first three
        guard.step(plain_batch())
        runs.append(backend.runs)
    assert runs == [1, 2, 3, 4, 5, 6]
    assert guard.evaluate([plain_batch()], lambda model, batch: len(model(batch[0]))) == [8]
    assert backend.runs == 6 + (compiled is not compile_forward), "validation, too"
    assert backend.compilations <= 3, "watched steps, other steps, validation"


@pytest.mark.medium
def test_a_model_that_is_first_compiled_in_a_retry_stays_compiled(backend: CountingBackend) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    guard = oomph.guard(optimizer=optimizer, cooldown_steps=100, **compile_model(net, backend))
    calls = []

    def forward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        if in_split_check():  # it would compile the model before the retry
            return torch.zeros(())
        calls.append(1)
        if len(calls) == 1:
            raise torch.OutOfMemoryError(CUDA_OOM)
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    runs = []
    for _ in range(4):
        assert guard.step(plain_batch(), forward=forward).micro_batches == 2
        runs.append(backend.runs)
    assert runs == [2, 4, 6, 8]


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_buffers_of_a_scripted_model_are_restored() -> None:
    torch.manual_seed(0)
    net: Any = torch.jit.script(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
    guard = guard_of(net, forward=failing_forward())
    assert guard.step(plain_batch()).micro_batches == 2
    assert float(dict(net.named_buffers())["1.num_batches_tracked"]) == 2
