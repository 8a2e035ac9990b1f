from __future__ import annotations

import pytest

from oomph.errors import CannotFit
from oomph.integrations._batch_queue import divide_budget
from oomph.units import MIB


def test_a_queue_of_two_batches_per_worker_if_half_of_the_budget_holds_it() -> None:
    memory = divide_budget(100 * MIB, 4 * MIB, MIB, workers=2)
    assert (memory.queue, memory.batches, memory.total) == (4, 26 * MIB, 100 * MIB)


def test_a_shorter_queue_leaves_half_of_the_budget_to_decoding() -> None:
    memory = divide_budget(100 * MIB, 9 * MIB, MIB, workers=4)
    assert (memory.queue, memory.batches, memory.decoding) == (3, 49 * MIB, 51 * MIB)


def test_the_smallest_queue_may_take_more_than_half() -> None:
    assert divide_budget(10 * MIB, 2 * MIB, MIB, workers=2).decoding == 2 * MIB


def test_batches_that_exceed_the_budget_are_one_sentence() -> None:
    with pytest.raises(CannotFit, match=r"needs 32 MiB for batches of 10 MiB, and the budget is 20 MiB; use smaller"):
        divide_budget(20 * MIB, 10 * MIB, MIB, workers=2)
