"""Buffers and settings that a retry puts back: late ones, large ones, and those of groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError

from .nets import plain_batch


class Counting(nn.Module):
    """Counts its calls in a buffer that is made by the first of them, and in one with many elements."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("late", None)
        self.register_buffer("large", torch.zeros(1 + (1 << 18)))
        self.late: Tensor | None
        self.large: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.late = torch.ones(()) if self.late is None else self.late + 1
        self.large += 1
        found: Tensor = self.layer(x)
        return found


class Late(nn.Module):
    """Makes its buffer in its first forward, beside another one or as the only one."""

    def __init__(self, *, alone: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        if not alone:
            self.register_buffer("other", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        if "calls" not in self._buffers:
            self.register_buffer("calls", torch.zeros(()))
        self.get_buffer("calls").add_(1)
        found: Tensor = self.layer(x)
        return found


class ShortOnce:
    """A forward that runs short after the model was called, in the n-th step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, model: nn.Module, piece: Any) -> Tensor:
        outputs = model(piece[0])
        self.at -= 1
        if self.at == 0:
            raise MemoryError
        return nn.functional.mse_loss(outputs, piece[1])


@pytest.mark.parametrize("at", [1, 2])
def test_late_and_large_buffers_are_put_back(at: int) -> None:
    net = Counting()
    forward = ShortOnce(at)
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), forward=forward)
    pieces = [guard.step(plain_batch()).pieces for _ in range(2)]
    assert max(pieces) == 2
    assert net.late is not None
    assert float(net.late) == sum(pieces)
    assert net.large.unique().tolist() == [sum(pieces)]


def test_an_error_takes_a_late_buffer_away_again() -> None:
    net = Counting()
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=torch.matmul)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        guard.step(plain_batch())
    assert net.late is None
    assert float(net.large.sum()) == 0


def test_settings_of_groups_are_put_back() -> None:
    """An optimizer that changes its own rates, and runs short after that."""

    class Decaying(torch.optim.SGD):
        faults = 1

        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                group["lr"] /= 2
            found = super().step(closure)
            if self.faults:
                self.faults -= 1
                raise MemoryError
            return found

    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    groups: list[dict[str, Any]] = [{"params": [net.weight]}, {"params": [net.bias], "lr": torch.tensor(0.5)}]
    optimizer = Decaying(groups, lr=0.25)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)
    assert guard.step(plain_batch()).retries == 1
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.125, 0.25]


def test_layers_without_a_shape_are_refused_by_name() -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    with pytest.raises(UsageError, match=r"'0\.weight' has no shape yet; run the model once"):
        oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=nn.functional.mse_loss)
    norm = nn.Sequential(nn.Linear(4, 4), nn.LazyBatchNorm1d(affine=False))
    with pytest.raises(UsageError, match=r"'1\.running_mean' has no shape yet"):
        oomph.guard(model=norm, optimizer=torch.optim.SGD(norm.parameters(), lr=0.1), loss=nn.functional.mse_loss)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("at", [2, 3])
def test_buffers_that_the_first_forward_makes_are_put_back(at: int, *, alone: bool) -> None:
    net = Late(alone=alone)
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), forward=ShortOnce(at))
    pieces = [guard.step(plain_batch()).pieces for _ in range(3)]
    assert max(pieces) == 2
    assert float(net.get_buffer("calls")) == sum(pieces)


class Graph(nn.Module):
    """Has the edges of a graph as a sparse buffer, whose weights each call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("edges", torch.eye(4).to_sparse())
        self.edges: Tensor

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(torch.sparse.mm(self.edges, x.T).T)
        self.edges.mul_(0.5)
        return found


def test_a_sparse_buffer_is_put_back() -> None:
    net = Graph()
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), forward=ShortOnce(1))
    pieces = guard.step(plain_batch()).pieces
    assert pieces == 2
    assert torch.equal(net.edges.to_dense(), torch.eye(4) * 0.5**pieces)


def test_a_transaction_puts_sparse_gradients_back() -> None:
    table = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters())
    table(torch.tensor([1, 3])).sum().backward()
    assert table.weight.grad is not None
    before, weights = table.weight.grad.to_dense(), table.weight.detach().clone()

    def work() -> None:
        table(torch.tensor([2])).sum().backward()
        optimizer.step()
        raise MemoryError

    assert oomph.Transaction(table, optimizer).run(work) is not None
    assert torch.equal(table.weight.grad.to_dense(), before)
    assert torch.equal(table.weight.detach(), weights)


class Resizing(nn.Module):
    """Has a buffer that its first forward enlarges in place, as observers of quantisation do, and a repeated one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("least", torch.zeros(0))
        self.register_buffer("repeated", torch.ones(4).expand(3, 4))
        self.least: Tensor
        self.repeated: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if self.least.numel() == 0:
            self.least.resize_(4).fill_(0)
        self.least += 1
        self.repeated[:1] += 1
        found: Tensor = self.layer(x)
        return found


@pytest.mark.parametrize("at", [1, 2])
def test_resized_and_repeated_buffers_are_put_back(at: int) -> None:
    net = Resizing()
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), forward=ShortOnce(at))
    pieces = [guard.step(plain_batch()).pieces for _ in range(2)]
    assert max(pieces) == 2
    assert net.least.tolist() == [sum(pieces)] * 4
    assert net.repeated.unique().tolist() == [1 + sum(pieces)]
