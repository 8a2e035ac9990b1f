"""What is done so that an update fits: its copy on the host, and parameters one after the other."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import oomph
from oomph.recovery import Guard, _wholeness
from oomph.recovery._options import read_options
from oomph.recovery._transaction import Progress
from oomph.recovery._update import Update

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


def build(**options: Any) -> Guard:
    net = plain_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, foreach=True)
    return oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, **options)


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


def test_where_updates_never_fit_the_next_ones_begin_with_what_fitted(caplog: pytest.LogCaptureFixture) -> None:
    guard = build(calm=3)
    guard.step(plain_batch())
    with caplog.at_level(logging.WARNING, logger="oomph"), Narrow():  # type: ignore[no-untyped-call]
        reports = [guard.step(plain_batch(seed=seed)) for seed in range(8)]
    assert [report.retries for report in reports] == [3, 3, 0, 0, 0, 2, 0, 0]  # the sixth tries with less
    assert {len(report.rungs) for report in reports} == {2}
    assert len(caplog.records) == 2
    assert "in an update: updated parameters one after the other" in caplog.text
    reports = [guard.step(plain_batch(seed=seed)) for seed in range(8, 28)]
    assert [len(report.rungs) for report in reports] == [2] * 4 + [1] * 4 + [0] * 12  # there is room again
    expected = build()
    expected.step(plain_batch())
    for seed in range(28):
        expected.step(plain_batch(seed=seed))
    assert differences(guard.state_dict(), expected.state_dict()) == []


def test_one_update_that_ran_short_is_forgotten_by_the_next() -> None:
    guard = build(calm=3)
    rungs = []
    for seed in range(12):
        with Narrow() if seed in {3, 6, 10} else contextlib.nullcontext():  # type: ignore[no-untyped-call]
            rungs.append(len(guard.step(plain_batch(seed=seed)).rungs))
    assert rungs == [0, 0, 0, 2, 0, 0, 2, 0, 0, 0, 2, 0]


def test_a_resumed_run_begins_its_updates_as_the_other_would_have() -> None:
    guard = build(calm=3)
    with Narrow():  # type: ignore[no-untyped-call]
        for seed in range(3):
            guard.step(plain_batch(seed=seed))
    state = copy.deepcopy(guard.state_dict())
    resumed = build(calm=3)
    resumed.load_state_dict(state)
    for seed in range(3, 12):
        reports = [one.step(plain_batch(seed=seed)) for one in (guard, resumed)]
        assert reports[0].rungs == reports[1].rungs
    del state["guard"]["footing"]  # as files of before are
    build().load_state_dict(state)


def test_where_nothing_is_copied_no_rung_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wholeness.Wholeness, "holds", lambda _, sparing: True)
    calls = itertools.count()
    guard = build(scheduler=ShortAfter(calls), calm=3)
    assert [len(guard.step(plain_batch(seed=seed)).rungs) for seed in range(3)] == [0, 0, 0]
    assert next(calls) > 3, "it was tried again"
    assert guard.footing.is_calm


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
    assert [one.optimizer for one in guard._update._usual[1].whole] == [asking, fused]
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


def crowded(cap: int) -> tuple[bool, list[str], int]:
    """A second step under a cap of bytes: whether it was made, what is not as before it otherwise, the peak."""
    torch.manual_seed(0)
    net = nn.Linear(64, 64)
    groups: list[dict[str, Any]] = [{"params": [net.weight]}, {"params": [net.bias], "maximize": True}]
    optimizer = torch.optim.Adam(groups, lr=0.1, weight_decay=0.1, foreach=True)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)
    batch = torch.randn(2, 64), torch.randn(2, 64)
    guard.step(batch)
    before = copy.deepcopy(guard.state_dict())
    with ByteCap(cap) as mode:
        try:
            guard.step(batch)
        except oomph.RetriesExhausted:
            return False, differences(guard.state_dict(), before), mode.peak
    assert guard.copy_bytes == 0 or mode.refused
    return True, [], mode.peak


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("finds", [True, False])
def test_an_update_that_found_room_is_made_or_not(monkeypatch: pytest.MonkeyPatch, *, finds: bool) -> None:
    if not finds:
        monkeypatch.setattr(_wholeness.Wholeness, "find_room", lambda _: None)
    done, _, peak = crowded(1 << 30)
    assert done
    outcomes = [crowded(cap) for cap in range(peak // 4, peak + 512, 512)]
    made = [done for done, _, _ in outcomes]
    assert made == sorted(made)  # with more memory it goes on being made
    assert {True, False} <= set(made)
    halves = [apart for _, apart, _ in outcomes if apart]
    assert bool(halves) != finds  # the test can fail


@pytest.mark.usefixtures("gpu")
def test_no_copy_is_made_where_room_was_found() -> None:
    guard = build()
    guard.step(plain_batch())
    assert guard.copy_bytes > 0  # the first one makes the state
    with FaultIn("cat") as mode:
        guard.step(plain_batch(seed=2))
    assert mode.raised == 0
    assert guard.copy_bytes == 0
    assert differences(guard.state_dict(), undisturbed().state_dict()) == []


class NoRoom(Narrow):
    """As such a device, which is asked before."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.__name__.startswith("empty") and (kwargs or {}).get("dtype") is torch.uint8:
            raise torch.OutOfMemoryError(CUDA)
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.usefixtures("gpu")
def test_where_there_is_no_room_parameters_are_copied_to_the_host_and_updated_one_by_one() -> None:
    rungs, guard = run(NoRoom())  # type: ignore[no-untyped-call]
    assert rungs == ["host copy", "one by one"]
    expected = build()
    expected.step(plain_batch())
    expected.optimizers[0].param_groups[0]["foreach"] = False
    expected.step(plain_batch(seed=2))
    expected.optimizers[0].param_groups[0]["foreach"] = True
    assert differences(guard.state_dict(), expected.state_dict()) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="room is found on a GPU")
@pytest.mark.parametrize("shape", [(4, 2048), (40, 200)], ids=["large tensors", "small ones"])
def test_an_update_on_a_crowded_gpu_is_made_or_not(shape: tuple[int, int]) -> None:
    """Under caps from one that leaves room for nothing to one that leaves room for all."""
    torch.manual_seed(0)
    depth, width = shape
    net = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    batch = torch.randn(4, width).cuda(), torch.randn(4, width).cuda()
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, calm=1)
    guard.step(batch)
    start = copy.deepcopy(guard.state_dict())
    guard.step(batch)
    assert guard.copy_bytes == 0
    end, total = copy.deepcopy(guard.state_dict()), torch.cuda.get_device_properties(0).total_memory
    weights = sum(one.nbytes for one in net.parameters()) >> 20
    made: list[bool] = []
    retries = 0
    try:
        for spare in range(0, 4 * weights + 22, max(weights // 4, 2)):
            torch.cuda.set_per_process_memory_fraction(1.0)
            guard.load_state_dict(copy.deepcopy(start))
            gc.collect()  # or else it is done in the middle of a step, and makes room
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (spare << 20)) / total)
            report = None
            with contextlib.suppress(oomph.RetriesExhausted):
                report = guard.step(batch)
            torch.cuda.set_per_process_memory_fraction(1.0)  # comparing takes some too
            made.append(report is not None)
            retries += 1 if report is None else report.retries
            if report is None:
                assert differences(guard.state_dict(), start) == []
            elif report.pieces == 1 and not report.rungs:
                assert differences(guard.state_dict(), end) == []
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert made[-1]
    assert retries  # memory did run short


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


class Late(torch.optim.SGD):
    """Writes to gradients from one step on."""

    writes = False

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups if self.writes else ():
            for one in group["params"]:
                one.grad.add_(one.detach(), alpha=0.1)
        return super().step(closure)


def test_gradients_that_an_update_spoils_end_the_step_as_before(tmp_path: Path) -> None:
    """What it writes to is learnt from updates that were made: a change of its form comes as a surprise."""
    net = plain_net()
    optimizer = Late(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, checkpoint=tmp_path / "saved.pt")
    guard.step(plain_batch())
    guard.step(plain_batch())
    optimizer.writes = True
    before = copy.deepcopy(guard.state_dict())
    with short_at(2), pytest.raises(oomph.RetriesExhausted) as raised:
        guard.step(plain_batch())
    assert "saved.pt" in str(raised.value)
    assert differences(guard.state_dict(), before) == []
    guard.step(plain_batch())  # learns
    with short_at(2):
        assert guard.step(plain_batch()).retries == 1


class Replacing(torch.optim.SGD):
    """Puts other gradients in the place of those that were computed."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for one in group["params"]:
                one.grad = 2 * one.grad + 0.1 * one.detach()
        return super().step(closure)


def write_before(optimizer: torch.optim.Optimizer, *_: object) -> None:
    """A hook that does, past the versions."""
    for group in optimizer.param_groups:
        for one in group["params"]:
            one.grad.data.add_(one.data, alpha=0.1)


@pytest.mark.parametrize("kind", [Replacing, torch.optim.SGD])
@pytest.mark.parametrize("step", [0, 2])
def test_gradients_that_others_change_are_put_back(kind: type[torch.optim.SGD], step: int) -> None:
    ends = []
    for short in (False, True):
        net = plain_net()
        optimizer = kind(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
        if kind is torch.optim.SGD:
            optimizer.register_step_pre_hook(write_before)
        guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)
        for number in range(4):
            with short_at(1 if short and number == step else 0):
                assert guard.step(plain_batch(seed=number)).retries == (short and number == step)
        ends.append(guard.state_dict())
    assert differences(*ends) == []


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_clipping_in_the_update_itself_spoils_nothing(kind: type[Any]) -> None:
    """As between ranks, where gradients are exchanged and then clipped."""
    ends = []
    for name in (None, "_foreach_sqrt" if kind is torch.optim.Adam else "_foreach_add"):
        net = plain_net()
        optimizer = kind(net.parameters(), lr=0.1, foreach=True, weight_decay=0.1)
        options = read_options({"clip": 0.01})
        update = Update(net, (optimizer,), options, None, Progress())
        for number in range(3):
            nn.functional.mse_loss(net(plain_batch(seed=number)[0]), plain_batch(seed=number)[1]).backward()
            with failing_once(name if number == 0 else None):
                done = update.run(update.prepare)
            assert done.fault is None
            assert done.retries == (name is not None and number == 0)
            assert update._states[id(optimizer)]._writes is None  # nobody takes the clipping for the optimizer's
            net.zero_grad()
        ends.append(net.state_dict())
    assert differences(*ends) == []


@contextlib.contextmanager
def failing_once(name: str | None, at: int = 1) -> Iterator[None]:
    """An operation over many tensors runs short, once."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if name is not None:
            function, calls = getattr(torch, name), itertools.count(1)

            def run(*args: Any, **kwargs: Any) -> Any:
                if next(calls) == at:
                    raise torch.OutOfMemoryError(CUDA)
                return function(*args, **kwargs)

            monkeypatch.setattr(torch, name, run)
        yield


def test_nothing_is_learnt_from_an_update_that_was_skipped() -> None:
    net = plain_net()
    optimizer = OldDecay(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    inputs, targets = plain_batch()
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, scaler=scaler)
    assert guard.step((inputs, 1e6 * targets)).skipped  # overflows
    assert guard._update._states[id(optimizer)]._writes is None
    scaler.update(1.0)
    assert not guard.step(plain_batch()).skipped
    assert guard._update._states[id(optimizer)]._writes


@pytest.mark.usefixtures("gpu")
def test_an_update_without_a_copy_that_ends_half_way_is_never_repeated() -> None:
    """It should not happen; if it does, because another thread took the room, the run ends."""
    guard = build()
    guard.step(plain_batch())
    guard.step(plain_batch())
    with failing_once("_foreach_sqrt"), pytest.raises(oomph.RetriesExhausted, match="resume from the last checkpoint"):
        guard.step(plain_batch())
    steps = {float(entry["step"]) for entry in guard.optimizers[0].state.values()}
    assert steps == {3.0}


def replaced(optimizer: torch.optim.Optimizer) -> None:
    for entry in optimizer.state.values():
        entry.update({name: value.clone() for name, value in entry.items()})


def reset(optimizer: torch.optim.Optimizer) -> None:
    optimizer.state[optimizer.param_groups[0]["params"][0]].clear()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("touched", [False, True], ids=["", "after its state was looked at"])
@pytest.mark.parametrize("change", [None, replaced, reset])
def test_it_is_known_whatever_was_done_with_the_state(
    change: Callable[[torch.optim.Optimizer], None] | None, *, touched: bool
) -> None:
    """Without a decay only the state is written before memory runs short. The run ends, or had made a copy."""
    ends = []
    for name in (None, "_foreach_sqrt"):
        net = plain_net()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1, foreach=True)
        if touched:
            assert not any(optimizer.state[one] for one in net.parameters())  # which makes entries
        guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)
        for _ in range(2):
            guard.step(plain_batch())
        if change is not None:
            change(optimizer)
        with failing_once(name), contextlib.suppress(oomph.RetriesExhausted):
            guard.step(plain_batch())
            ends.append(guard.state_dict())
    copies = touched and change is reset  # of a parameter without state, where others had none at first
    assert len(ends) == 1 + copies
    assert differences(ends[0], ends[-1]) == []


@pytest.mark.usefixtures("gpu")
def test_state_that_was_replaced_is_not_held() -> None:
    guard = build()
    for _ in range(2):
        guard.step(plain_batch())
    state = guard.optimizers[0].state
    held = [weakref.ref(one.untyped_storage()) for entry in state.values() for one in entry.values()]
    replaced(guard.optimizers[0])
    guard.step(plain_batch())
    gc.collect()
    assert all(one() is None for one in held)


@pytest.mark.usefixtures("gpu")
def test_an_update_that_runs_short_before_its_first_write_is_repeated() -> None:
    ends = []
    for name in (None, "_foreach_add"):
        net = plain_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True)
        guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)
        for number in range(4):
            with failing_once(name if number == 2 else None):
                report = guard.step(plain_batch(seed=number))
            assert report.retries == (name is not None and number == 2)
        assert guard.copy_bytes == 0
        ends.append(guard.state_dict())
    assert differences(*ends) == []


def test_one_by_one_says_nothing_of_what_the_usual_update_writes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nesterov's writes to gradients over all tensors at once only."""

    def short(*args: Any, **kwargs: Any) -> Any:
        raise torch.OutOfMemoryError(CUDA, args, kwargs)

    monkeypatch.setattr(torch, "_foreach_add", short)
    net = plain_net()
    weights = list(net.parameters())
    groups: list[dict[str, Any]] = [{"params": weights[:1]}, {"params": weights[1:], "weight_decay": 0.1}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, foreach=True)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, calm=3)
    assert [len(guard.step(plain_batch(seed=seed)).rungs) for seed in range(8)] == [2] * 8


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
