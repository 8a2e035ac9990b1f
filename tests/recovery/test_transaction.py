"""A transaction's work happens completely or not at all, in any loop."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer, SparseAdam

import oomph
from oomph.errors import OomphError
from oomph.recovery._transaction import Transaction
from oomph.recovery.snapshots._snapshots import BufferSnapshot, Restore

from .faults import FaultAt, FaultIn
from .nets import differences, plain_batch, plain_net


def build() -> tuple[nn.Module, AdamW]:
    net = plain_net()
    return net, AdamW(net.parameters(), lr=0.1)


def train(net: nn.Module, optimizer: Optimizer) -> None:
    inputs, targets = plain_batch()
    nn.functional.mse_loss(net(inputs), targets).backward()
    optimizer.step()


@pytest.mark.medium
def test_error_at_every_operation_of_a_plain_loop() -> None:
    expected, optimizer = build()
    train(expected, optimizer)
    with FaultAt() as mode:
        train(*build())
    failures = 0
    for operation in range(1, mode.count + 1):
        net, optimizer = build()
        transaction = oomph.Transaction(net, optimizer)

        def work(net: nn.Module = net, optimizer: Optimizer = optimizer) -> None:
            train(net, optimizer)

        with FaultAt([operation]):
            oom = transaction.run(work)
        if oom is not None:  # an error during the capture is retried by the transaction itself
            failures += 1
            assert "out of memory" in oom.message
            assert transaction.run(work) is None
        assert differences(dict(net.state_dict()), dict(expected.state_dict())) == []
    assert failures > 40


def test_gradients_of_parameters_that_only_the_optimizer_holds_are_restored() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    transaction = oomph.Transaction(plain_net(), SGD([weight], lr=0.1))

    def work() -> None:
        (weight * 2).sum().backward()
        torch.zeros(1).tanh()

    with FaultIn("tanh"):
        assert transaction.run(work) is not None
    assert weight.grad.tolist() == [1.0, 1.0]


def test_sparse_gradients_are_restored() -> None:
    table = nn.Embedding(10, 4, sparse=True)
    optimizer = SparseAdam(table.parameters())
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


class UnrestorableSnapshot:
    """Its restore always fails."""

    def capture(self) -> Restore:
        def restore() -> None:
            raise OomphError("no", "never mind")

        return restore


def test_a_user_error_propagates_and_everything_else_is_restored() -> None:
    net = nn.BatchNorm1d(3)
    transaction = Transaction.of([UnrestorableSnapshot(), BufferSnapshot(net)])

    def work() -> None:
        net(torch.ones(4, 3))
        raise ValueError("the label is 7")

    with pytest.raises(ValueError, match="the label is 7"):
        transaction.run(work)
    assert net.running_mean is not None
    assert net.running_mean.tolist() == [0, 0, 0]


def test_an_out_of_memory_error_that_cannot_be_undone_is_an_error() -> None:
    def work() -> None:
        raise MemoryError

    with pytest.raises(OomphError, match="no"):
        Transaction.of([UnrestorableSnapshot()]).run(work)


def test_committed_work_stays_after_an_error() -> None:
    net = nn.BatchNorm1d(3)
    transaction = Transaction.of([BufferSnapshot(net)], lambda: True)

    def work() -> None:
        net(torch.ones(4, 3))
        raise ValueError("the label is 7")

    with pytest.raises(ValueError, match="the label is 7"):
        transaction.run(work)
    assert net.running_mean is not None
    assert net.running_mean.tolist() != [0, 0, 0]


def test_work_that_succeeded_can_be_restored_until_it_is_released() -> None:
    net = nn.BatchNorm1d(3)
    transaction = Transaction.of([BufferSnapshot(net)])
    assert net.running_mean is not None
    for is_released in (False, True):
        assert transaction.try_run(lambda: net(torch.ones(4, 3))) is None
        if is_released:
            transaction.release()
        transaction.restore()
        assert (net.running_mean.tolist() == [0, 0, 0]) is not is_released
