"""Memory that runs short at every operation of a step, one after the other: nothing is lost, nothing happens twice."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import torch

from .faults import MAKERS, FaultAt
from .nets import Rig, differences

KINDS: dict[str, dict[str, Any]] = {
    "adamw": {},
    "sgd": {"adam": False},
    "scaled": {"scaled": True},
    "pieces": {"adam": False, "pieces": 2},
}


@functools.cache
def undisturbed(kind: str, plan: tuple[tuple[int, bool], ...]) -> dict[str, Any]:
    """The state after steps in given numbers of pieces, with nothing going wrong."""
    rig = Rig(**KINDS[kind])
    for (pieces, update), batch in zip(plan, rig.batches(len(plan)), strict=True):
        rig.guard.ladder._forced = pieces
        rig.guard.step(batch, update=update)
    return rig.state()


def operations(kind: str, updates: tuple[bool, ...]) -> int:
    rig = Rig(**KINDS[kind])
    batches = rig.batches(len(updates))
    with FaultAt() as mode:
        for update, batch in zip(updates, batches, strict=True):
            rig.guard.step(batch, update=update)
    return mode.count


def disturbed(kind: str, updates: tuple[bool, ...], mode: FaultAt) -> None:
    """Steps with faults, held against the undisturbed ones with the same pieces."""
    rig = Rig(**KINDS[kind])
    batches = rig.batches(len(updates))
    plan, retries = [], 0
    with mode:
        for update, batch in zip(updates, batches, strict=True):
            report = rig.guard.step(batch, update=update)
            plan.append((report.pieces, update))
            retries += report.retries
    assert mode.raised, mode.at
    assert differences(rig.state(), undisturbed(kind, tuple(plan))) == []


@pytest.mark.parametrize(("kind", "steps"), [("adamw", 2), ("sgd", 2), ("scaled", 2), ("pieces", 1)])
def test_a_fault_at_every_operation(kind: str, steps: int) -> None:
    """Forward, loss, backward, clipping, optimizer, scaler, average, scheduler, and the guard's own taking."""
    updates = (True,) * steps
    count = operations(kind, updates)
    assert count > 200
    makers = itertools.cycle(MAKERS)
    for k in range(1, count + 1):
        disturbed(kind, updates, FaultAt([k], next(makers)))


def test_a_fault_at_every_operation_of_accumulated_batches() -> None:
    for k in range(1, operations("sgd", (False, False, True)) + 1):
        disturbed("sgd", (False, False, True), FaultAt([k]))


def test_a_second_fault_at_every_operation_after_the_first() -> None:
    """Among them those in the guard's own putting back."""
    count = operations("adamw", (True,))
    for first in range(5, count, 23):
        for distance in range(1, 30):
            disturbed("adamw", (True,), FaultAt([first, first + distance]))


def test_faults_in_a_row_at_the_worst_place() -> None:
    count = operations("adamw", (True,))
    for first in range(count // 2, count, 31):
        disturbed("adamw", (True,), FaultAt(range(first, first + 3)))


def test_the_test_can_fail() -> None:
    """A loop that retries without a transaction is caught."""
    rig = Rig(pieces=2)
    batch = rig.batches(1)[0]
    with pytest.raises(torch.OutOfMemoryError), FaultAt([60]):
        rig.guard._work.run(batch, 2, None, rig.guard._backward)
    rig.guard.step(batch)
    assert differences(rig.state(), undisturbed("adamw", ((2, True),)))
