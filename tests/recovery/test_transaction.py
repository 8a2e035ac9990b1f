"""What a transaction does when putting back fails itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from oomph.errors import OomphError
from oomph.recovery._keepers import Buffers
from oomph.recovery._transaction import Transaction


class Unwilling:
    """A keeper that can't put anything back."""

    def take(self) -> None:
        """Nothing."""

    def put_back(self) -> None:
        raise OomphError("no", "never mind")

    def let_go(self) -> None:
        """Nothing."""


def test_an_error_of_ones_own_passes_and_what_can_be_is_put_back() -> None:
    net = nn.BatchNorm1d(3)
    transaction = Transaction.of([Unwilling(), Buffers(net)])

    def work() -> None:
        net(torch.ones(4, 3))
        raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        transaction.run(work)
    assert net.running_mean is not None
    assert net.running_mean.tolist() == [0, 0, 0]


def test_memory_that_runs_short_is_told_when_nothing_can_be_put_back() -> None:
    def work() -> None:
        raise MemoryError

    with pytest.raises(OomphError, match="no"):
        Transaction.of([Unwilling()]).run(work)
