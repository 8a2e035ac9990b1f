"""What is done so that an update fits: its copy on the host, and parameters one after the other."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import oomph
from oomph.runner import Guard, _wholeness

from .faults import CUDA
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


class ShortAfter:
    """A scheduler that runs short twice, after another one has made its step."""

    def __init__(self, calls: Iterator[int]) -> None:
        self.next = calls.__next__  # beyond what the guard puts back

    def step(self) -> None:
        if self.next() < 2:
            raise torch.OutOfMemoryError(CUDA)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        del state


@pytest.mark.parametrize("whole", [True, False])
def test_the_rate_is_put_back_with_its_scheduler(monkeypatch: pytest.MonkeyPatch, *, whole: bool) -> None:
    monkeypatch.setattr(_wholeness.Wholeness, "holds", lambda _, sparing: whole)
    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    halving = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    guard = oomph.guard(
        model=net, optimizer=optimizer, loss=nn.functional.mse_loss, scheduler=[halving, ShortAfter(itertools.count())]
    )
    guard.step(plain_batch())
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_of_optimizers_that_take_memory_first_only_one_goes_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wholeness.Wholeness, "holds", lambda _, sparing: True)
    net = plain_net()
    halves = list(net.parameters())[:1], list(net.parameters())[1:]
    optimizers = [torch.optim.SGD(half, lr=0.1, momentum=0.9) for half in halves]
    guard = oomph.guard(model=net, optimizer=optimizers, loss=nn.functional.mse_loss)
    guard.step(plain_batch())
    assert guard._update._copied == (optimizers[1],)
    assert guard.copy_bytes == sum(one.numel() * one.element_size() for one in halves[1])


def test_fused_updates_come_last_because_they_need_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wholeness.Wholeness, "holds", lambda _, sparing: True)
    net = plain_net()
    halves = list(net.parameters())[:1], list(net.parameters())[1:]
    fused, asking = torch.optim.SGD(halves[0], lr=0.1, fused=True), torch.optim.SGD(halves[1], lr=0.1)
    guard = oomph.guard(model=net, optimizer=[fused, asking], loss=nn.functional.mse_loss)
    guard.step(plain_batch())
    assert guard._update._usual is not None
    assert guard._update._usual[1].others == (asking, fused)
    assert guard.copy_bytes == 0


def test_nothing_of_an_update_without_a_copy_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = build()
    guard.step(plain_batch())  # copied
    monkeypatch.setattr(_wholeness.Wholeness, "holds", lambda _, sparing: True)
    guard.step(plain_batch())
    old = [weakref.ref(one.untyped_storage()) for one in guard.model.parameters()]
    guard.model.double()
    gc.collect()
    assert all(one() is None for one in old)


def test_state_that_was_moved_to_other_parameters_is_put_back_there() -> None:
    guard = build()
    guard.step(plain_batch())
    guard.step(plain_batch())
    optimizer = guard.optimizers[0]
    group = optimizer.param_groups[0]
    fresh = [nn.Parameter(one.detach().clone()) for one in group["params"]]
    for old, new in zip(group["params"], fresh, strict=True):
        optimizer.state[new] = optimizer.state.pop(old)
    group["params"] = fresh
    state = guard._update._states[id(optimizer)]
    state.take()
    state.put_back()
    assert set(map(id, optimizer.state)) == set(map(id, fresh))


class ShortAt:
    """Runs short at one operation of SGD's update. No mode of torch's: in one, tensors don't count their versions."""

    def __init__(self, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.seen = at, 0
        for name in ("_foreach_add", "_foreach_add_", "_foreach_mul_"):
            monkeypatch.setattr(torch, name, self.watched(getattr(torch, name)))

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.seen += 1
            if self.seen == self.at:
                raise torch.OutOfMemoryError(CUDA)
            return function(*args, **kwargs)

        return run


@contextlib.contextmanager
def short_at(at: int) -> Iterator[ShortAt]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield ShortAt(at, monkeypatch)


def nesterov() -> Guard:
    """One whose update writes to the gradients of its first group."""
    net = plain_net()
    halves = list(net.parameters())[:2], list(net.parameters())[2:]
    groups: list[dict[str, Any]] = [{"params": halves[0]}, {"params": halves[1], "weight_decay": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, foreach=True)
    return oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)


@pytest.mark.parametrize(("step", "operations"), [(0, 5), (2, 9)], ids=["first", "later"])
def test_gradients_that_an_update_writes_to_are_put_back(step: int, operations: int) -> None:
    truth = nesterov()
    for seed in range(3):
        with short_at(0) as counted:
            truth.step(plain_batch(seed=seed))
        assert counted.seen == operations or seed != step
    for at in range(1, operations + 1):
        guard = nesterov()
        for seed in range(3):
            with short_at(at if seed == step else 0):
                report = guard.step(plain_batch(seed=seed))
            assert report.retries == (seed == step)
        assert differences(guard.state_dict(), truth.state_dict()) == []


class OldDecay(torch.optim.SGD):
    """As optimizers were written once: the decay is added to the gradient itself, past the versions."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for one in group["params"]:
                one.grad.data.add_(one.data, alpha=0.1)
        return super().step(closure)


def test_gradients_that_are_written_to_in_secret_are_put_back() -> None:
    guards = []
    for at in (0, 2):
        net = plain_net()
        optimizer = OldDecay(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
        guards.append(oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss))
        guards[-1].step(plain_batch())
        with short_at(at):
            guards[-1].step(plain_batch(seed=1))
    assert differences(guards[0].state_dict(), guards[1].state_dict()) == []


def test_gradients_that_an_update_spoils_end_the_step_as_before(tmp_path: Path) -> None:
    """What it writes to is learnt from updates that were made: a change of its form comes as a surprise."""
    guard = build_plain_sgd(tmp_path / "saved.pt")
    guard.step(plain_batch())
    guard.step(plain_batch())
    guard.optimizers[0].param_groups[0]["nesterov"] = True
    before = copy.deepcopy(guard.state_dict())
    with short_at(4), pytest.raises(oomph.OutOfRungs) as raised:  # mul, add, add to gradients, add to weights
        guard.step(plain_batch())
    assert "saved.pt" in str(raised.value)
    assert differences(guard.state_dict(), before) == []
    guard.step(plain_batch())  # learns
    with short_at(4):
        assert guard.step(plain_batch()).retries == 1


def build_plain_sgd(place: Path) -> Guard:
    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
    return oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, checkpoint=place)


def test_no_gradient_is_held_after_an_update_that_writes_to_it() -> None:
    guard = nesterov()
    held: list[weakref.ref[Any]] = []

    def note(*_: object) -> None:
        held.extend(weakref.ref(one.grad.untyped_storage()) for one in guard.model.parameters() if one.grad is not None)

    handle = guard.optimizers[0].register_step_post_hook(note)
    guard.step(plain_batch())
    handle.remove()
    gc.collect()
    assert held
    assert all(one() is None for one in held)
