"""Out-of-memory errors at every operation of a step, one after the other: nothing is lost, nothing happens twice."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from oomph.recovery.splitting import Metrics, SplitRule, Work

from .faults import OOM_ERRORS, FaultAt
from .nets import Rig, cloned, differences

SETUPS: dict[str, dict[str, Any]] = {
    "adamw": {"foreach": True},
    "sgd": {"adam": False, "foreach": True},
    "scaled": {"foreach": True, "scaled": True},
    "split": {"adam": False, "micro_batch": 4},
}


class Replay:
    """Steps of a rig, each of which can be repeated from its start."""

    def __init__(self, setup: str, updates: tuple[bool, ...]) -> None:
        self.rig, self.updates = Rig(**SETUPS[setup]), updates
        self.batches = self.rig.batches(len(updates))
        self.max_micro_batch = self.rig.guard.config.micro_batch
        self.starts = []
        for index in range(len(updates)):
            self.starts.append(cloned(self.rig.state()))
            self.step(index)
        self.ends: dict[tuple[int, int], dict[str, Any]] = {}

    def step(self, index: int) -> int:
        return self.rig.guard.step(self.batches[index], update=self.updates[index]).micro_batches

    def rewind(self, index: int) -> None:
        self.rig.guard.load_state_dict(cloned(self.starts[index]))

    def count_operations(self, index: int) -> int:
        self.rewind(index)
        with FaultAt() as mode:
            self.step(index)
        return mode.count

    def undisturbed(self, index: int, micro_batches: int) -> dict[str, Any]:
        """Return the state after a step with that many micro-batches and no error."""
        if (index, micro_batches) not in self.ends:
            self.rewind(index)
            policy = self.rig.guard.retry_policy
            policy._max_micro_batch = 8 // micro_batches
            self.step(index)
            policy._max_micro_batch = self.max_micro_batch
            self.ends[index, micro_batches] = cloned(self.rig.state())
        return self.ends[index, micro_batches]

    def disturb(self, index: int, mode: FaultAt) -> int:
        """Run a step with errors and compare it with the undisturbed one; return the number of errors."""
        self.rewind(index)
        for observer in self.rig.guard._batches.effects._observers.values():  # the first step looks for side effects
            observer._looks, observer.is_done = 0, index > 0
        with mode:
            micro_batches = self.step(index)
        state = self.rig.state()
        if (index, micro_batches) not in self.ends:
            state = cloned(state)  # the undisturbed step runs now
        assert differences(state, self.undisturbed(index, micro_batches)) == []
        return mode.raised


@pytest.mark.medium
@pytest.mark.parametrize(
    ("setup", "updates"),
    [
        ("adamw", (True, True)),
        pytest.param("sgd", (True, True), marks=pytest.mark.large),
        ("scaled", (True,)),
        ("split", (True,)),
        ("sgd", (False, False, True)),
    ],
)
def test_error_at_every_operation(setup: str, updates: tuple[bool, ...]) -> None:
    """In forward, loss, backward, clipping, optimizer, scaler, EMA, scheduler, and in the guard's own snapshots."""
    replay, errors = Replay(setup, updates), itertools.cycle(OOM_ERRORS)
    raised = 0
    for index in range(len(updates)):
        for operation in itertools.count(1):
            if not replay.disturb(index, FaultAt([operation], next(errors))):
                break  # the step has fewer operations
            raised += 1
    assert raised > 100


@pytest.mark.medium
def test_second_error_at_every_operation_after_the_first() -> None:
    """Among them errors during the guard's own restore."""
    replay = Replay("adamw", (True,))
    for first in range(5, replay.count_operations(0) - 5, 86):
        for distance in range(1, 40):
            assert replay.disturb(0, FaultAt([first, first + distance]))


def test_several_errors_in_a_row() -> None:
    replay = Replay("adamw", (True,))
    count = replay.count_operations(0)
    for first in range(count // 2, count - 5, 31):
        assert replay.disturb(0, FaultAt(range(first, first + 3)))


def test_a_retry_without_a_transaction_is_detected() -> None:
    rig = Rig(micro_batch=4)
    batch = rig.batches(1)[0]
    work = Work(rig.guard._batches.objective, SplitRule("sums"), 2, rig.guard._backward)
    with pytest.raises(torch.OutOfMemoryError), FaultAt([60]):
        rig.guard._runner.run(batch, work, Metrics())
    rig.guard.step(batch)
    assert differences(rig.state(), Replay("adamw", (True,)).undisturbed(0, 2))
