"""Interrupts and errors near the end of a step: it has happened wholly, or not at all."""

from __future__ import annotations

import copy
import itertools
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import oomph
from oomph.recovery import _update, _wholeness
from oomph.recovery._signals import HoldInterrupt

from .nets import Rig, differences, plain_batch

OURS = str(Path(_update.__file__).parent)


class InterruptAt:
    """Interrupts at the k-th line of the guard's own code after the update has begun to write."""

    def __init__(self, k: int, *, update: bool) -> None:
        self.k, self.count, self.begins = k, 0, "_follow" if update else "_finish"
        self.began = self.raised = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        if frame.f_code.co_filename.startswith(OURS):
            self.began |= frame.f_code.co_name == self.begins
            return self.line
        return None

    def line(self, frame: FrameType, event: str, argument: object) -> Any:
        del frame, argument
        if event == "line" and self.began:
            self.count += 1
            if self.count == self.k:
                sys.settrace(None)
                self.raised = True
                raise KeyboardInterrupt
        return self.line

    def run(self, rig: Rig, *, update: bool) -> None:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            rig.guard.step(rig.batches(1)[0], update=update)
        finally:
            sys.settrace(before)
            torch.set_grad_enabled(True)  # a line of `with torch.no_grad()` that is interrupted doesn't leave it


@pytest.mark.parametrize("update", [True, False])
def test_an_interrupt_at_any_line_leaves_a_step_or_none(update: bool) -> None:  # noqa: FBT001
    rig = Rig()
    rig.guard.step(rig.batches(1)[0], update=update)
    before = copy.deepcopy(rig.state())
    rig.guard.step(rig.batches(1)[0], update=update)
    after = copy.deepcopy(rig.state())
    seen = set()
    for k in range(1, 1000):
        rig.guard.load_state_dict(copy.deepcopy(before))
        interrupt = InterruptAt(k, update=update)
        try:
            interrupt.run(rig, update=update)
        except KeyboardInterrupt:
            state = rig.state()
            happened = not differences(state, after)
            assert happened or not differences(state, before), f"half a step at line {k}"
            seen.add(happened)
        if not interrupt.raised:
            break
    assert k > 20
    assert seen == {True, False}


class OddError(Exception):
    """Somebody's own error."""


class Unwilling:
    """A scheduler that raises, the first time."""

    def __init__(self) -> None:
        self.next = itertools.count().__next__  # beyond what is put back

    def step(self) -> None:
        if self.next() == 0:
            raise OddError


@pytest.mark.parametrize("whole", [False, True])
def test_an_error_after_the_update(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """An update of which there is no copy has happened, with its buffers and random numbers; any other one has not."""
    monkeypatch.setattr(_wholeness.Wholeness, "holds", lambda _, sparing: whole)
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2), nn.Dropout(0.5)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    before = copy.deepcopy(nets[0].state_dict())
    guards = [
        oomph.guard(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            loss=nn.functional.mse_loss,
            scheduler=scheduler,
            scaler=torch.amp.GradScaler("cpu", init_scale=2.0),
        )
        for net, scheduler in zip(nets, (Unwilling(), None), strict=True)
    ]
    torch.manual_seed(1)
    with pytest.raises(OddError):
        guards[0].step(plain_batch())
    drawn = torch.rand(())
    torch.manual_seed(1)
    if whole:
        guards[1].step(plain_batch())
    assert torch.equal(drawn, torch.rand(()))
    assert guards[0].steps == int(whole)
    assert differences(dict(nets[0].state_dict()), dict(nets[1].state_dict() if whole else before)) == []
    assert all(one.grad is None for one in nets[0].parameters())
    guards[0].step(plain_batch())  # and the run can go on
    assert guards[0].steps == 1 + int(whole)


class Interrupted(torch.optim.SGD):
    """Ctrl-C comes when half of the update is written."""

    comes = True

    def step(self, closure: Any = None) -> Any:
        weight = self.param_groups[0]["params"][0]
        with torch.no_grad():
            weight.add_(weight.grad)
        if self.comes:
            signal.raise_signal(signal.SIGINT)
        return super().step(closure)


@pytest.mark.parametrize("whole", [False, True])
def test_an_interrupt_in_the_middle_of_an_update(monkeypatch: pytest.MonkeyPatch, *, whole: bool) -> None:
    """It waits for the end of one of which there is no copy; any other one is undone."""
    monkeypatch.setattr(_wholeness.Wholeness, "holds", lambda _, sparing: whole)
    torch.manual_seed(0)
    nets = [nn.Linear(4, 2) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    before = copy.deepcopy(nets[0].state_dict())
    optimizers = [Interrupted(net.parameters(), lr=0.1) for net in nets]
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(one, 0.5) for one in optimizers]
    guards = [
        oomph.guard(
            model=net,
            optimizer=optimizer,
            loss=nn.functional.mse_loss,
            scheduler=scheduler,
            scaler=torch.amp.GradScaler("cpu", init_scale=2.0),
        )
        for net, optimizer, scheduler in zip(nets, optimizers, schedulers, strict=True)
    ]
    with pytest.raises(KeyboardInterrupt):
        guards[0].step(plain_batch())
    monkeypatch.setattr(Interrupted, "comes", False)
    guards[1].step(plain_batch())
    assert guards[0].steps == schedulers[0].last_epoch == int(whole)
    assert differences(dict(nets[0].state_dict()), dict(nets[1].state_dict() if whole else before)) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    guards[0].step(plain_batch())  # and the run can go on
    assert guards[0].steps == schedulers[0].last_epoch == 1 + int(whole)


def test_a_handler_of_ones_own_gets_its_turn_afterwards() -> None:
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        for _ in range(2):
            with HoldInterrupt():
                signal.raise_signal(signal.SIGINT)
                inside = list(seen)
            assert signal.getsignal(signal.SIGINT) is note
        assert inside == [signal.SIGINT]  # of the first time
        assert seen == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_hold_that_was_broken_into_does_not_last() -> None:
    hold = HoldInterrupt()
    hold.__enter__()  # and nobody leaves it
    with pytest.raises(KeyboardInterrupt), hold:
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_is_not_lost_when_an_error_comes_too() -> None:
    def fail() -> None:
        with HoldInterrupt():
            signal.raise_signal(signal.SIGINT)
            raise OddError

    with pytest.raises(KeyboardInterrupt) as caught:
        fail()
    assert isinstance(caught.value.__context__, OddError)


def test_in_a_thread_nothing_is_held_because_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wholeness.Wholeness, "holds", lambda _, sparing: True)
    net = nn.Linear(4, 2)
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=nn.functional.mse_loss)
    with ThreadPoolExecutor(1) as threads:
        report = threads.submit(guard.step, plain_batch()).result()
    assert report.updated
    assert guard.steps == 1
