from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import UsageError
from oomph.patches import apply_checkpointing, apply_offload


@dataclass
class CountingMemory:
    """Host memory that keeps the sizes of what is stored."""

    stored: list[int] = field(default_factory=list)

    def store(self, tensor: Tensor) -> Tensor:
        self.stored.append(tensor.numel())
        return tensor.clone()

    def load(self, copy: Tensor, device: torch.device) -> Tensor:
        return copy.to(device).clone()


WIDTH, ROWS = 512, 1024  # 2 MiB


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(y.view(2, -1, WIDTH).transpose(0, 1) * 2).sum()


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def gradients(model: nn.Module) -> list[Tensor]:
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1), requires_grad=True)
    model.zero_grad()
    model(x).backward()
    return [tensor.grad.clone() for tensor in (x, *model.parameters()) if tensor.grad is not None]


@pytest.mark.parametrize("paths", [("first",), ("second",), ("",), ("first", "second")])
def test_gradients_are_the_same_bit_for_bit(net: Net, paths: tuple[str, ...]) -> None:
    expected = gradients(copy.deepcopy(net))
    memory = CountingMemory()
    apply_offload(net, paths, memory)
    assert all(torch.equal(*pair) for pair in zip(gradients(net), expected, strict=True))
    assert memory.stored


def test_weights_are_not_offloaded_and_what_is_saved_twice_is_copied_once(net: Net) -> None:
    memory = CountingMemory()
    apply_offload(net, ("first",), memory)
    gradients(net)
    assert memory.stored == [ROWS * WIDTH] * 3  # the inputs of the linear layer and of BatchNorm, the output of ReLU


def test_small_tensors_stay(net: Net) -> None:
    memory = CountingMemory()
    apply_offload(net, ("",), memory)
    net(torch.randn(128, WIDTH)).backward()
    assert memory.stored == []


def test_values_are_those_at_the_time_of_saving() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 1
            squared = y * y
            y.mul_(3)  # the graph has the value before and the one after
            return (squared + y * y).sum()

    def gradient(model: nn.Module) -> Tensor:
        x = torch.full((ROWS, WIDTH), 2.0, requires_grad=True)
        model(x).backward()
        assert x.grad is not None
        return x.grad

    model = InPlace()
    apply_offload(model, ("",))
    assert torch.equal(gradient(model), torch.full((ROWS, WIDTH), 2 * 2.0 + 9 * 2 * 2.0))


def test_inputs_of_checkpointed_modules_are_offloaded(net: Net) -> None:
    expected = gradients(copy.deepcopy(net))
    memory = CountingMemory()
    apply_checkpointing(net, ("first",))
    apply_offload(net, ("",), memory)
    for actual, gradient in zip(gradients(net), expected, strict=True):
        assert torch.equal(actual, gradient)
    assert len(memory.stored) == 2  # the inputs of both modules


def test_undo_and_evaluation(net: Net) -> None:
    memory = CountingMemory()
    patch = apply_offload(net, ("first",), memory)
    with torch.no_grad():
        net(torch.randn(ROWS, WIDTH))
    patch.undo()
    gradients(net)
    assert memory.stored == []
    assert "forward" not in vars(net.first)


def test_unknown_and_replaced_modules_are_named(net: Net) -> None:
    with pytest.raises(UsageError, match="no block 'third'"):
        apply_offload(net, ("third",))
    apply_checkpointing(net, ("first",))
    with pytest.raises(UsageError, match="forward of block 'first' has been replaced"):
        apply_offload(net, ("first",))
