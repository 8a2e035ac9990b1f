"""What is done so that an update fits: its copy on the host, and parameters one after the other."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import oomph
from oomph.errors import OutOfRungs
from oomph.runner import Guard, _wholeness

from .faults import CUDA, ByteCap, FaultIn
from .nets import differences, plain_batch, plain_net


class Crowded(TorchDispatchMode):
    """A device on which the optimizer's own temporaries don't fit beside the copy of weights and state."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.holds_copy, self.refused = False, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.__name__.partition(".")[0]
        if name == "cat":
            self.holds_copy = True
        elif name == "empty":  # the block of a copy on the host
            self.holds_copy = False
        if name == "_foreach_sqrt" and self.holds_copy:
            self.refused += 1
            raise torch.OutOfMemoryError(CUDA)
        return func(*args, **(kwargs or {}))


class Narrow(TorchDispatchMode):
    """A device on which temporaries for all parameters at once never fit."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.__name__.startswith("_foreach_sqrt"):
            raise torch.OutOfMemoryError(CUDA)
        return func(*args, **(kwargs or {}))


def build() -> Guard:
    net = plain_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, foreach=True)
    return oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)


def run(mode: TorchDispatchMode) -> tuple[list[str], Guard]:
    guard = build()
    guard.step(plain_batch())
    with mode:
        report = guard.step(plain_batch(seed=2))
    return [rung.name for rung in report.rungs], guard


def undisturbed() -> Guard:
    guard = build()
    guard.step(plain_batch())
    guard.step(plain_batch(seed=2))
    return guard


def test_the_copy_goes_to_the_host_where_the_device_has_no_room_for_both() -> None:
    mode = Crowded()
    rungs, guard = run(mode)
    assert rungs == ["host copy"]
    assert mode.refused == 2
    assert differences(guard.state_dict(), undisturbed().state_dict()) == []


def test_parameters_are_updated_one_by_one_where_all_at_once_do_not_fit() -> None:
    rungs, guard = run(Narrow())  # type: ignore[no-untyped-call]
    assert rungs == ["host copy", "one by one"]
    truth = undisturbed().model.state_dict()
    assert all(torch.allclose(one, truth[name], atol=1e-6) for name, one in guard.model.state_dict().items())
    assert guard.optimizers[0].param_groups[0]["foreach"] is True, "only in that step"


def crowded(cap: int) -> tuple[bool, list[str], int]:
    """A second step under a cap of bytes: whether it was made, what is not as before it otherwise, the peak."""
    torch.manual_seed(0)
    net = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, foreach=True)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)
    batch = torch.randn(2, 64), torch.randn(2, 64)
    guard.step(batch)
    before = copy.deepcopy(guard.state_dict())
    with ByteCap(cap) as mode:
        try:
            guard.step(batch)
        except OutOfRungs:
            return False, differences(guard.state_dict(), before), mode.peak
    return True, [], mode.peak


@pytest.mark.parametrize("asks", [True, False])
def test_an_update_whose_memory_was_asked_for_is_made_or_not(monkeypatch: pytest.MonkeyPatch, *, asks: bool) -> None:
    monkeypatch.setattr(_wholeness, "_are_on_gpu", lambda _: True)
    if not asks:
        monkeypatch.setattr(_wholeness.Wholeness, "ask", lambda _: [])
    done, _, peak = crowded(1 << 30)
    assert done
    outcomes = [crowded(cap) for cap in range(peak // 4, peak + 512, 512)]
    made = [done for done, _, _ in outcomes]
    assert made == sorted(made)  # with more memory it goes on being made
    assert {True, False} <= set(made)
    halves = [apart for _, apart, _ in outcomes if apart]
    assert bool(halves) != asks  # the test can fail


def test_no_copy_is_made_of_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wholeness, "_are_on_gpu", lambda _: True)
    guard = build()
    guard.step(plain_batch())
    assert guard.copy_bytes > 0  # the first one makes the state
    with FaultIn("cat") as mode:
        guard.step(plain_batch(seed=2))
    assert mode.raised == 0
    assert guard.copy_bytes == 0
    assert differences(guard.state_dict(), undisturbed().state_dict()) == []


def test_what_is_asked_for_and_not_there_becomes_a_copy_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where temporaries for all parameters at once don't fit, they are updated one after the other."""
    monkeypatch.setattr(_wholeness, "_are_on_gpu", lambda _: True)
    rungs, guard = run(Narrow())  # type: ignore[no-untyped-call]
    assert rungs == ["host copy", "one by one"]
    expected = build()
    expected.step(plain_batch())
    expected.optimizers[0].param_groups[0]["foreach"] = False
    expected.step(plain_batch(seed=2))
    expected.optimizers[0].param_groups[0]["foreach"] = True
    assert differences(guard.state_dict(), expected.state_dict()) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="memory is asked for on a GPU")
def test_an_update_on_a_crowded_gpu_is_made_or_not() -> None:
    """Under caps from one that leaves room for nothing to one that leaves room for all."""
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    batch = torch.randn(4, 2048).cuda(), torch.randn(4, 2048).cuda()
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, calm=1)
    guard.step(batch)
    start = copy.deepcopy(guard.state_dict())
    guard.step(batch)
    assert guard.copy_bytes == 0
    end, total = copy.deepcopy(guard.state_dict()), torch.cuda.get_device_properties(0).total_memory
    made: list[bool] = []
    try:
        for spare in range(0, 280, 20):
            torch.cuda.set_per_process_memory_fraction(1.0)
            guard.load_state_dict(copy.deepcopy(start))
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (spare << 20)) / total)
            report = None
            with contextlib.suppress(OutOfRungs):
                report = guard.step(batch)
            torch.cuda.set_per_process_memory_fraction(1.0)  # comparing takes some too
            made.append(report is not None)
            if report is None:
                assert differences(guard.state_dict(), start) == []
            elif report.pieces == 1 and not report.rungs:
                assert differences(guard.state_dict(), end) == []
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert {True, False} <= set(made)
