"""What is done after a fault, cheapest first."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.recovery._fault import Fault, catch
from oomph.recovery._ladder import Ladder

SENTENCE = (
    "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 139.80 GiB of which 99.92 GiB is "
    "free. Including non-PyTorch memory, this process has 31.94 GiB memory in use. 31.35 GiB allowed; Of the allocated "
    "memory 31.17 GiB is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated."
)


def fault(asked: str, unused: str) -> Fault:
    def work() -> None:
        raise torch.OutOfMemoryError(SENTENCE.format(asked=asked, unused=unused))

    found = catch(work)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("asked", "unused", "full"), [("1024.00 MiB", "30.97 MiB", True), ("20.00 MiB", "2.10 GiB", False)]
)
def test_memory_is_full_when_all_holes_together_would_not_do(asked: str, unused: str, full: bool) -> None:  # noqa: FBT001
    assert fault(asked, unused).is_full is full


def test_who_does_not_say_how_full_it_was_may_have_holes() -> None:
    assert not Fault(None).is_full
    found = catch(lambda: (_ for _ in ()).throw(RuntimeError("CUDA error: out of memory")))
    assert found is not None
    assert not found.is_full


def test_blocks_are_freed_first_where_there_may_be_holes_and_pieces_made_at_once_where_there_are_none() -> None:
    climbed = [Ladder(forced=1, calm=5, lasts=(), frees=True).climb(8, holes=holes) for holes in (True, False)]
    assert [rung.name for rung in climbed if rung is not None] == ["free", "pieces"]


@pytest.mark.parametrize(("unused", "first"), [("30.97 MiB", "pieces"), ("2.10 GiB", "free")])
def test_the_guard_tells_the_ladder_how_full_memory_was(unused: str, first: str) -> None:
    faults = 0

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal faults
        if faults:
            faults -= 1
            raise torch.OutOfMemoryError(SENTENCE.format(asked="1024.00 MiB", unused=unused))
        return nn.functional.mse_loss(outputs, targets)

    model = nn.Linear(4, 2)
    guard = oomph.guard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    guard.ladder._frees = True  # as on a GPU
    batch = (torch.rand(8, 4), torch.rand(8, 2))
    guard.step(batch)  # the first one looks at the loss, too
    faults = 1
    report = guard.step(batch)
    assert [rung.name for rung in report.rungs] == [first]
