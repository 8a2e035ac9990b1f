"""Optimizers that accelerate prepared: recognized by their interface, without importing accelerate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import oomph
from oomph.recovery._accelerate import AccelerateState

from .faults import FaultIn
from .nets import differences, plain_batch, plain_net

mse_loss = nn.functional.mse_loss


class PreparedOptimizer(torch.optim.Optimizer):
    """The interface of `accelerate.optimizer.AcceleratedOptimizer`: steps are skipped unless gradients are synced."""

    __module__ = "accelerate.optimizer"

    def __init__(self, optimizer: torch.optim.Optimizer, gradient_state: Any, scaler: Any = None) -> None:
        self.optimizer, self.gradient_state, self.scaler = optimizer, gradient_state, scaler

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optimizer.state

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure) if self.gradient_state.sync_gradients else None

    def zero_grad(self, set_to_none: bool | None = None) -> None:  # noqa: FBT001  accelerate's signature
        del set_to_none
        if self.gradient_state.sync_gradients:
            self.optimizer.zero_grad()


def prepared(net: nn.Module, scaler: Any = None) -> tuple[PreparedOptimizer, SimpleNamespace]:
    gradient_state = SimpleNamespace(sync_gradients=True)
    return PreparedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), gradient_state, scaler), gradient_state


def test_wrappers_are_removed_and_others_stay() -> None:
    net, scaler = plain_net(), torch.amp.GradScaler("cpu")
    wrapper, gradient_state = prepared(net, scaler)
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    state = AccelerateState([wrapper, plain])
    assert state.optimizers == (wrapper.optimizer, plain)
    assert state.scaler is scaler
    assert state.syncs_grads
    gradient_state.sync_gradients = False
    assert not state.syncs_grads


def test_without_accelerate_every_step_syncs() -> None:
    plain = torch.optim.SGD(plain_net().parameters(), lr=0.1)
    state = AccelerateState([plain])
    assert state.optimizers == (plain,)
    assert state.syncs_grads
    assert state.scaler is None


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_batches_within_accumulate_count_as_one(micro_batch: int | None) -> None:
    """The weights are those after one step with all the batches together."""
    net, plain = plain_net(torch.float64), plain_net(torch.float64)
    wrapper, gradient_state = prepared(net)
    guard = oomph.guard(model=net, optimizer=wrapper, loss=mse_loss, micro_batch=micro_batch)
    inputs, targets = plain_batch(12, dtype=torch.float64)
    updates = []
    for start, end, syncs in ((0, 4, False), (4, 8, False), (8, 12, True)):
        gradient_state.sync_gradients = syncs
        updates.append(guard.step((inputs[start:end], targets[start:end])).updated)
    mse_loss(plain(inputs), targets).backward()
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    assert updates == [False, False, True]
    for param, expected in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(param, expected, rtol=1e-12, atol=1e-14)


def test_its_scaler_scales() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    net, plain, batch = plain_net(), plain_net(), plain_batch()
    guard = oomph.guard(model=net, optimizer=prepared(net, scaler)[0], loss=mse_loss)
    assert guard.scaler is scaler
    guard.step(batch)
    oomph.guard(
        model=plain,
        optimizer=torch.optim.SGD(plain.parameters(), lr=0.1),
        loss=mse_loss,
        scaler=torch.amp.GradScaler("cpu", init_scale=64.0),
    ).step(batch)
    assert differences(dict(net.state_dict()), dict(plain.state_dict())) == []


def test_a_retry_within_accumulate_adds_nothing_twice() -> None:
    states = []
    for fails in (False, True):
        net = plain_net()
        wrapper, gradient_state = prepared(net)
        guard = oomph.guard(model=net, optimizer=wrapper, loss=mse_loss, micro_batch=None if fails else 4)
        for seed, syncs in ((0, False), (1, True)):
            gradient_state.sync_gradients = syncs
            with FaultIn("tanh_backward", times=int(fails and not syncs)):
                assert guard.step(plain_batch(seed=seed)).micro_batches == 2
        states.append(dict(net.state_dict()))
    assert differences(*states) == []


@pytest.mark.medium
def test_the_interface_is_that_of_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    net, plain = plain_net(torch.float64), plain_net(torch.float64)
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    guard = oomph.guard(model=model, optimizer=optimizer, loss=mse_loss, micro_batch=2)
    inputs, targets = plain_batch(8, dtype=torch.float64)
    updates = []
    for start in (0, 4):
        with accelerator.accumulate(model):
            updates.append(guard.step((inputs[start : start + 4], targets[start : start + 4])).updated)
    mse_loss(plain(inputs), targets).backward()
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    assert updates == [False, True]
    for param, expected in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(param, expected, rtol=1e-12, atol=1e-14)
