"""Buffers that a retry restores: late, large, sparse, resized and expanded ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ..faults import CUDA_OOM, failing_forward, in_split_check
from ..nets import guard_of, plain_batch


class CountingNet(nn.Module):
    """Counts its calls in a buffer that is None before the first call, and in a large one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("late", None)
        self.register_buffer("large", torch.zeros(1 + (1 << 20)))
        self.late: Tensor | None
        self.large: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.late = torch.ones(()) if self.late is None else self.late + 1
        self.large += 1
        return self.layer(x)


@pytest.mark.medium
@pytest.mark.parametrize("call", [1, 2])
def test_late_and_large_buffers_are_restored(call: int) -> None:
    net = CountingNet()
    guard = guard_of(net, forward=failing_forward(call))
    micro_batches = [guard.step(plain_batch()).micro_batches for _ in range(2)]
    assert max(micro_batches) == 2
    assert net.late is not None
    assert float(net.late) == sum(micro_batches)
    assert net.large.unique().tolist() == [sum(micro_batches)]


def test_an_error_resets_a_late_buffer_to_none() -> None:
    net = CountingNet()
    guard = guard_of(net, loss=torch.matmul)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        guard.step(plain_batch())
    assert net.late is None
    assert float(net.large.sum()) == 0


class RegisteringNet(nn.Module):
    """Registers a buffer in its first forward, in a module with or without other buffers.

    Args:
        alone: it is the module's only buffer.
        fail: is called first; it may run out of memory.
    """

    def __init__(self, *, alone: bool, fail: Callable[[], object] = int) -> None:
        super().__init__()
        self.layer, self.fail = nn.Linear(4, 2), fail
        if not alone:
            self.register_buffer("other", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.fail()
        if "calls" not in self._buffers:
            self.register_buffer("calls", torch.zeros(()))
        self.get_buffer("calls").add_(1)
        return self.layer(x)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("call", [2, 3])
def test_buffers_that_the_first_forward_registers_are_restored(call: int, *, alone: bool) -> None:
    net = RegisteringNet(alone=alone)
    guard = guard_of(net, forward=failing_forward(call))
    micro_batches = [guard.step(plain_batch()).micro_batches for _ in range(3)]
    assert max(micro_batches) == 2
    assert float(net.get_buffer("calls")) == sum(micro_batches)


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_buffers_that_a_retried_forward_registers_are_restored(failures: int) -> None:
    remaining = [failures]  # not an attribute, which a retry would restore

    def fail() -> None:
        if remaining[0] and not in_split_check():
            remaining[0] -= 1
            raise torch.OutOfMemoryError(CUDA_OOM)

    net = RegisteringNet(alone=True, fail=fail)
    guard = guard_of(net, forward=failing_forward(2**failures + 1))
    micro_batches = [guard.step(plain_batch()).micro_batches for _ in range(3)]
    assert micro_batches[1] >= micro_batches[0]
    assert float(net.get_buffer("calls")) == sum(micro_batches)


class GraphNet(nn.Module):
    """Has a sparse buffer that each call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("edges", torch.eye(4).to_sparse())
        self.edges: Tensor

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(torch.sparse.mm(self.edges, x.T).T)
        self.edges.mul_(0.5)
        return outputs


def test_a_sparse_buffer_is_restored() -> None:
    net = GraphNet()
    guard = guard_of(net, forward=failing_forward(), inexact="warn")  # each micro-batch has other edges
    micro_batches = guard.step(plain_batch()).micro_batches
    assert micro_batches == 2
    assert torch.equal(net.edges.to_dense(), torch.eye(4) * 0.5**micro_batches)


class ResizingNet(nn.Module):
    """Has a buffer that its first forward resizes in place, as quantization observers do, and an expanded one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("resized", torch.zeros(0))
        self.register_buffer("expanded", torch.ones(4).expand(3, 4))
        self.resized: Tensor
        self.expanded: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if self.resized.numel() == 0:
            self.resized.resize_(4).fill_(0)
        self.resized += 1
        self.expanded[:1] += 1
        return self.layer(x)


@pytest.mark.parametrize("call", [1, 2])
def test_resized_and_expanded_buffers_are_restored(call: int) -> None:
    net = ResizingNet()
    guard = guard_of(net, forward=failing_forward(call))
    micro_batches = [guard.step(plain_batch()).micro_batches for _ in range(2)]
    assert max(micro_batches) == 2
    assert net.resized.tolist() == [sum(micro_batches)] * 4
    assert net.expanded.unique().tolist() == [1 + sum(micro_batches)]
