"""Memory that runs short at every operation of a step, one after the other: nothing is lost, nothing happens twice."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch

from oomph.recovery import _copies

from .faults import MAKERS, FaultAt
from .nets import Rig, differences

KINDS: dict[str, dict[str, Any]] = {
    "adamw": {},
    "sgd": {"adam": False},
    "scaled": {"scaled": True},
    "pieces": {"adam": False, "pieces": 2},
}


class Course:
    """Steps of one rig, each of which can be done again from where it began."""

    def __init__(self, kind: str, updates: tuple[bool, ...]) -> None:
        self.rig, self.updates = Rig(**KINDS[kind]), updates
        self.batches = self.rig.batches(len(updates))
        self.forced, self.look = self.rig.guard.ladder._forced, self.rig.guard._work.look
        self.starts = []
        for index in range(len(updates)):
            self.starts.append(copy.deepcopy(self.rig.state()))
            self.step(index)
        self.rig.guard.load_state_dict(self.starts[0])
        self.ends: dict[tuple[int, int], dict[str, Any]] = {}

    def step(self, index: int) -> int:
        return self.rig.guard.step(self.batches[index], update=self.updates[index]).pieces

    def begin(self, index: int) -> None:
        self.rig.guard.load_state_dict(copy.deepcopy(self.starts[index]))

    def operations(self, index: int) -> int:
        self.begin(index)
        with FaultAt() as mode:
            self.step(index)
        return mode.count

    def undisturbed(self, index: int, pieces: int) -> dict[str, Any]:
        """The state after a step in so many pieces, with nothing going wrong."""
        if (index, pieces) not in self.ends:
            self.begin(index)
            self.rig.guard.ladder._forced = pieces
            self.step(index)
            self.rig.guard.ladder._forced = self.forced
            self.ends[index, pieces] = copy.deepcopy(self.rig.state())
        return self.ends[index, pieces]

    def disturb(self, index: int, mode: FaultAt, *, after: int = 0) -> int:
        """A step with faults, held against the undisturbed one with the same pieces; how many were raised.

        Args:
            index: of the step.
            mode: where it fails.
            after: how many of the steps before it are made too, so that the guard has something from them.
        """
        self.begin(index - after)
        for before in range(index - after, index):
            self.step(before)
        self.rig.guard._work.look = self.look if index == 0 else None
        with mode:
            pieces = self.step(index)
        found = copy.deepcopy(self.rig.state())
        assert differences(found, self.undisturbed(index, pieces)) == []
        return mode.raised


@pytest.mark.parametrize(
    ("kind", "updates"),
    [
        ("adamw", (True, True)),
        ("sgd", (True, True)),
        ("scaled", (True, True)),
        ("pieces", (True,)),
        ("sgd", (False, False, True)),
    ],
)
def test_a_fault_at_every_operation(kind: str, updates: tuple[bool, ...]) -> None:
    """Forward, loss, backward, clipping, optimizer, scaler, average, scheduler, and the guard's own taking."""
    course, makers = Course(kind, updates), itertools.cycle(MAKERS)
    faults = 0
    for index in range(len(updates)):
        for k in itertools.count(1):
            if not course.disturb(index, FaultAt([k], next(makers))):
                break  # the step has fewer operations
            faults += 1
    assert faults > 150


def test_a_fault_at_every_operation_where_copies_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As small ones do on a GPU: the blocks of the step before are written again."""
    monkeypatch.setattr(_copies, "_is_kept", lambda _: True)
    course, faults = Course("adamw", (True, True)), 0
    kept = [group for state in course.rig.guard._update._states.values() for group in state._copies._groups]
    assert kept
    assert all(group._rows for group in kept)
    for k in itertools.count(1):
        if not course.disturb(1, FaultAt([k]), after=1):
            break
        faults += 1
    assert faults > 75


def test_a_second_fault_at_every_operation_after_the_first() -> None:
    """Among them those in the guard's own putting back."""
    course = Course("adamw", (True,))
    for first in range(5, course.operations(0) - 5, 23):
        for distance in range(1, 40):
            assert course.disturb(0, FaultAt([first, first + distance]))


def test_faults_in_a_row_at_the_worst_place() -> None:
    course = Course("adamw", (True,))
    count = course.operations(0)
    for first in range(count // 2, count - 5, 31):
        assert course.disturb(0, FaultAt(range(first, first + 3)))


def test_the_test_can_fail() -> None:
    """A loop that retries without a transaction is caught."""
    rig = Rig(pieces=2)
    batch = rig.batches(1)[0]
    with pytest.raises(torch.OutOfMemoryError), FaultAt([60]):
        rig.guard._work.run(batch, 2, None, rig.guard._backward)
    rig.guard.step(batch)
    assert differences(rig.state(), Course("adamw", (True,)).undisturbed(0, 2))
