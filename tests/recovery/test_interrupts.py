"""Interrupts and errors near the end of a step: it has happened completely, or not at all."""

from __future__ import annotations

import itertools
import signal
import types
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

import oomph
from oomph.recovery import Guard

from .faults import FailingCall, FaultIn, InterruptAt
from .nets import Rig, cloned, differences, plain_batch


def run_with_interrupt(rig: Rig, interrupt: InterruptAt, start: dict[str, Any], *, update: bool) -> dict[str, Any]:
    """Run a step from a state with an interrupt, and return the state after it."""
    rig.guard.load_state_dict(cloned(start))
    batch = rig.batches(1)[0]
    interrupt.run(lambda: rig.guard.step(batch, update=update))
    return rig.state()


def states_around_a_step(rig: Rig, *, update: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run two steps, and return the states before and after the second one."""
    rig.guard.step(rig.batches(1)[0], update=update)
    before = cloned(rig.state())
    rig.guard.step(rig.batches(1)[0], update=update)
    return before, cloned(rig.state())


@pytest.mark.medium
@pytest.mark.parametrize(("update", "scaled"), [(True, False), (True, True), (False, False)])
def test_an_interrupt_at_any_line_leaves_a_complete_step_or_none(*, update: bool, scaled: bool) -> None:
    rig = Rig(scaled=scaled, foreach=True)
    before, after = states_around_a_step(rig, update=update)
    outcomes = set()
    for line in itertools.count(1):
        interrupt = InterruptAt(line, start="_after_optimizers" if update else "_keep_grads")
        state = run_with_interrupt(rig, interrupt, before, update=update)
        has_happened = not differences(state, after)
        assert has_happened or not differences(state, before), f"half a step at line {line}"
        outcomes.add(has_happened)
        if not interrupt.raised:
            break
    assert line > 20
    assert outcomes == {True, False}


@pytest.mark.medium
def test_an_interrupt_before_the_update_leaves_no_step() -> None:
    """At lines spread over the step, and then a step that runs out of memory is retried correctly."""
    rig = Rig(foreach=True)
    before, after = states_around_a_step(rig, update=True)
    for line in itertools.count(3, 17):
        interrupt = InterruptAt(line)
        state = run_with_interrupt(rig, interrupt, before, update=True)
        if not differences(state, after):
            break
        assert not differences(state, before), f"half a step at line {line}"
        rig.guard.load_state_dict(cloned(before))
        batch = rig.batches(1)[0]
        with FaultIn("_foreach_addcdiv", times=1):
            assert rig.guard.step(batch).retries == 1
        assert differences(rig.state(), after) == [], f"wrong retry after an interrupt at line {line}"
    assert line > 200


class UserError(Exception):
    """An error that only the user's code knows."""


class FailingScheduler:
    """Raises an error in its first step."""

    def __init__(self) -> None:
        self.calls = itertools.count()

    def step(self) -> None:
        if next(self.calls) == 0:
            raise UserError

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        del state


def noisy_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))


def scaled_guard(optimizer: torch.optim.Optimizer, net: nn.Module, scheduler: Any) -> Guard:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    return oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, scheduler=scheduler, scaler=scaler)


@pytest.mark.parametrize("fused", [False, True])
def test_an_error_after_the_update(*, fused: bool) -> None:
    """A fused update has no backup, so the step has happened, with its buffers and random numbers."""
    failing, expected = noisy_net(), noisy_net()
    before = cloned(dict(failing.state_dict()))
    guard = scaled_guard(SGD(failing.parameters(), lr=0.1, fused=fused), failing, FailingScheduler())
    torch.manual_seed(1)
    with pytest.raises(UserError):
        guard.step(plain_batch())
    number = torch.rand(())
    torch.manual_seed(1)
    if fused:
        scaled_guard(SGD(expected.parameters(), lr=0.1, fused=True), expected, None).step(plain_batch())
        before = dict(expected.state_dict())
    assert torch.equal(number, torch.rand(()))
    assert guard.steps == int(fused)
    assert differences(dict(failing.state_dict()), before) == []
    assert all(param.grad is None for param in failing.parameters())
    guard.step(plain_batch())
    assert guard.steps == 1 + int(fused), "the run can continue"


def interrupted_sgd(net: nn.Module, *, fused: bool, times: int) -> SGD:
    """Return an optimizer that gets Ctrl-C when half of its update is written."""
    optimizer = SGD(net.parameters(), lr=0.1, fused=fused)
    step, remaining = optimizer.step, itertools.count(1)

    def interrupted(self: SGD, *args: Any, **kwargs: Any) -> Any:
        weight = self.param_groups[0]["params"][0]
        with torch.no_grad():
            weight.add_(weight.grad)
        if next(remaining) <= times:
            signal.raise_signal(signal.SIGINT)
        return step(*args, **kwargs)

    optimizer.step = types.MethodType(interrupted, optimizer)  # type: ignore[method-assign]
    return optimizer


@pytest.mark.parametrize("fused", [False, True])
def test_an_interrupt_in_the_middle_of_an_update(*, fused: bool) -> None:
    """It is deferred to the end of an update without a backup; any other update is undone."""
    guards, schedulers = [], []
    for times in (1, 0):
        torch.manual_seed(0)
        net = nn.Linear(4, 2)
        optimizer = interrupted_sgd(net, fused=fused, times=times)
        schedulers.append(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
        guards.append(scaled_guard(optimizer, net, schedulers[-1]))
    before = cloned(dict(guards[0].model.state_dict()))
    with pytest.raises(KeyboardInterrupt):
        guards[0].step(plain_batch())
    guards[1].step(plain_batch())
    assert guards[0].steps == schedulers[0].last_epoch == int(fused)
    expected = dict(guards[1].model.state_dict()) if fused else before
    assert differences(dict(guards[0].model.state_dict()), expected) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    guards[0].step(plain_batch())
    assert guards[0].steps == schedulers[0].last_epoch == 1 + int(fused), "the run can continue"


def test_an_interrupt_inside_an_optimizer_operation_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(foreach=True)
    batches = rig.batches(2)
    rig.guard.step(batches[0])
    before = cloned(rig.state())
    function = FailingCall(torch._foreach_addcdiv_, after=True, error=KeyboardInterrupt)
    monkeypatch.setattr(torch, "_foreach_addcdiv_", function)
    with pytest.raises(KeyboardInterrupt):
        rig.guard.step(batches[1])
    assert function.raised == 1
    assert differences(rig.state(), before) == []
    assert all(param.grad is None for param in rig.net.parameters())


@pytest.mark.medium
def test_an_interrupt_while_a_failed_update_is_undone_leaves_no_step() -> None:
    rig = Rig(foreach=True)
    before, after = states_around_a_step(rig, update=True)
    outcomes = set()
    for line in itertools.count(1, 17):
        interrupt = InterruptAt(line, start="caught_oom")
        with FaultIn("_foreach_addcdiv", times=1):
            state = run_with_interrupt(rig, interrupt, before, update=True)
        has_happened = not differences(state, after)
        assert has_happened or not differences(state, before), f"half a step at line {line}"
        outcomes.add(has_happened)
        if not interrupt.raised:
            break
    assert outcomes == {True, False}
