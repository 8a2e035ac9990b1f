"""Optimizer updates happen completely or not at all, with a backup or without."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import itertools
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

import oomph
from oomph.errors import UsageError
from oomph.recovery import Guard
from oomph.recovery._config import GuardConfig
from oomph.recovery._optimizer_step import OptimizerStep, is_atomic
from oomph.recovery._transaction import CommitState
from oomph.recovery.snapshots._snapshots import OptimizerSnapshot

from .faults import CUDA_OOM, ByteCap, FailingCall, FaultAt, FaultIn
from .nets import cloned, differences, guard_of, plain_batch, plain_guard, plain_net


def adamw_guard(*, fused: bool | None = None, **options: Any) -> Guard:
    net = plain_net()
    optimizer = AdamW(net.parameters(), lr=0.1, foreach=not fused, fused=fused)
    return guard_of(net, optimizer=optimizer, **options)


def fallback_names(report: oomph.StepReport) -> list[str]:
    return [fallback.name for fallback in report.fallbacks]


def oom() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError(CUDA_OOM)


@contextlib.contextmanager
def failing(name: str, call: int = 1) -> Iterator[FailingCall]:
    """Let a function of torch run out of memory at a call; 0 only counts.

    Not with a dispatch mode, in which tensors don't count their versions.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        function = FailingCall(getattr(torch, name), call, error=oom)
        monkeypatch.setattr(torch, name, function)
        yield function


class NoMultiTensor(TorchDispatchMode):
    """A device on which temporaries for all parameters at once never fit."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.__name__.startswith("_foreach_sqrt"):
            raise oom()
        return func(*args, **(kwargs or {}))


class NoDeviceBackup(NoMultiTensor):
    """A device on which these temporaries fit unless there is a backup of weights and state."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.has_backup, self.raised = False, 0
        capture = OptimizerSnapshot.capture

        def noting(snapshot: OptimizerSnapshot) -> Any:
            self.has_backup = not snapshot._on_host
            return capture(snapshot)

        monkeypatch.setattr(OptimizerSnapshot, "capture", noting)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self.has_backup:
            return func(*args, **(kwargs or {}))
        self.raised += func.__name__.startswith("_foreach_sqrt")
        return super().__torch_dispatch__(func, types, args, kwargs)


def two_steps(mode: contextlib.AbstractContextManager[Any]) -> tuple[list[str], Guard]:
    """Run two steps, the second one in a mode; return its fallbacks."""
    guard = adamw_guard()
    guard.step(plain_batch())
    with mode:
        report = guard.step(plain_batch(seed=2))
    return fallback_names(report), guard


def test_backup_is_kept_on_the_host_if_the_device_has_no_memory_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = NoDeviceBackup(monkeypatch)
    fallbacks, guard = two_steps(mode)
    assert fallbacks == ["host_backup"]
    assert mode.raised == 2
    assert differences(guard.state_dict(), two_steps(contextlib.nullcontext())[1].state_dict()) == []


def test_parameters_are_updated_one_by_one_if_a_multi_tensor_update_does_not_fit() -> None:
    fallbacks, guard = two_steps(NoMultiTensor())  # type: ignore[no-untyped-call]
    assert fallbacks == ["host_backup", "single_tensor"]
    expected = two_steps(contextlib.nullcontext())[1].model.state_dict()
    assert all(torch.allclose(value, expected[name], atol=1e-6) for name, value in guard.model.state_dict().items())
    assert guard.optimizers[0].param_groups[0]["foreach"] is True, "only in that step"


def test_later_updates_start_with_the_fallbacks_that_worked_and_drop_them_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = adamw_guard(cooldown_steps=3)
    guard.step(plain_batch())
    with caplog.at_level(logging.WARNING, logger="oomph"), NoMultiTensor():  # type: ignore[no-untyped-call]
        reports = [guard.step(plain_batch(seed=seed)) for seed in range(8)]
    assert [report.retries for report in reports] == [3, 0, 0, 0, 0, 0, 2, 0]  # the seventh tries one fallback less
    assert {len(report.fallbacks) for report in reports} == {2}
    assert len(caplog.records) == 2
    assert "in an optimizer update; retried by updating parameters one after the other" in caplog.text
    reports = [guard.step(plain_batch(seed=seed)) for seed in range(8, 38)]
    assert [len(report.fallbacks) for report in reports] == [2] * 10 + [1] * 12 + [0] * 8
    assert guard.optimizer_step.level == 0
    expected = adamw_guard()
    for seed in (1, *range(38)):
        expected.step(plain_batch(seed=seed))
    assert differences(guard.state_dict(), expected.state_dict()) == []


def test_a_resumed_run_starts_its_updates_with_the_same_fallbacks() -> None:
    guard, resumed = adamw_guard(cooldown_steps=3), adamw_guard(cooldown_steps=3)
    with NoMultiTensor():  # type: ignore[no-untyped-call]
        for seed in range(3):
            guard.step(plain_batch(seed=seed))
    resumed.load_state_dict(cloned(guard.state_dict()))
    for seed in range(3, 12):
        reports = [each.step(plain_batch(seed=seed)) for each in (guard, resumed)]
        assert reports[0].fallbacks == reports[1].fallbacks


class FailingScheduler:
    """Runs out of memory in its first steps; the guard doesn't restore how many those are."""

    def __init__(self, failures: int = 2) -> None:
        self.calls = itertools.count()
        self.failures = failures

    def step(self) -> None:
        if next(self.calls) < self.failures:
            raise oom()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        del state


def test_no_fallback_is_reported_if_there_is_no_backup() -> None:
    scheduler = FailingScheduler()
    net = plain_net()
    guard = guard_of(net, optimizer=SGD(net.parameters(), lr=0.1, fused=True), scheduler=scheduler)
    reports = [guard.step(plain_batch(seed=seed)) for seed in range(3)]
    assert [(report.retries, report.fallbacks) for report in reports] == [(2, ()), (0, ()), (0, ())]
    assert guard.optimizer_step.level == 0


@pytest.mark.parametrize("fused", [False, True])
def test_learning_rate_is_restored_with_its_scheduler(*, fused: bool) -> None:
    net = plain_net()
    optimizer = SGD(net.parameters(), lr=0.1, fused=fused)
    halving = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    guard = guard_of(net, optimizer=optimizer, scheduler=[halving, FailingScheduler()])
    assert guard.step(plain_batch()).retries == 2
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_options_that_an_optimizer_changes_itself_are_restored() -> None:
    class HalvingSGD(SGD):
        fail = FailingCall(lambda: None)

        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                group["lr"] /= 2
            result = super().step(closure)
            self.fail()
            return result

    net = nn.Linear(4, 2)
    groups: list[dict[str, Any]] = [{"params": [net.weight]}, {"params": [net.bias], "lr": torch.tensor(0.5)}]
    optimizer = HalvingSGD(groups, lr=0.25)
    assert guard_of(net, optimizer=optimizer).step(plain_batch()).retries == 1
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.125, 0.25]


def halves(net: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    parameters = list(net.parameters())
    return parameters[:2], parameters[2:]


@pytest.mark.medium
def test_several_optimizers_step_together_or_not_at_all() -> None:
    def build() -> Guard:
        net = plain_net()
        first, second = halves(net)
        return guard_of(net, optimizer=[AdamW(first, lr=0.1), SGD(second, lr=0.1, momentum=0.9)])

    expected, batch = build(), plain_batch()
    with FaultAt() as mode:
        expected.step(batch)
    not_split = 0
    for operation in range(1, mode.count + 1):
        guard = build()
        with FaultAt([operation]):
            micro_batches = guard.step(batch).micro_batches
        if micro_batches == 1:
            not_split += 1
            assert differences(guard.state_dict(), expected.state_dict()) == []
    assert not_split > 20


def test_fused_optimizers_step_last_because_they_have_no_backup() -> None:
    net = plain_net()
    first, second = halves(net)
    fused, plain = SGD(first, lr=0.1, fused=True), SGD(second, lr=0.1)
    order: list[torch.optim.Optimizer] = []
    for optimizer in (fused, plain):
        optimizer.register_step_post_hook(lambda stepped, *_: order.append(stepped))
    guard = guard_of(net, optimizer=[fused, plain])
    guard.step(plain_batch())
    assert order == [plain, fused]
    assert guard.backup_bytes == sum(param.nbytes for param in second)


def test_a_backup_is_as_large_as_weights_and_state() -> None:
    guard = adamw_guard()
    weights = sum(param.nbytes for param in guard.model.parameters())
    guard.step(plain_batch())
    assert guard.backup_bytes == weights
    guard.step(plain_batch())
    assert guard.backup_bytes == 3 * weights + 4 * 4  # two moments, and four counters of steps


class CustomSGD(SGD):
    """A subclass may allocate between its writes."""


def test_only_fused_optimizers_of_torch_with_state_are_atomic() -> None:
    def stepped(kind: Callable[..., torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
        net = plain_net()
        optimizer = kind(net.parameters(), lr=0.1, **options)
        for param in net.parameters():
            param.grad = torch.ones_like(param)
        optimizer.step()
        return optimizer

    parameters = list(plain_net().parameters())
    for param in parameters:
        param.grad = torch.ones_like(param)
    assert not is_atomic(AdamW(parameters, fused=True)), "the first update allocates state"
    assert not is_atomic(SGD(parameters, lr=0.1, momentum=0.9, fused=True))
    assert is_atomic(SGD(parameters, lr=0.1, fused=True)), "it has no state"
    assert is_atomic(stepped(AdamW, fused=True))
    assert is_atomic(stepped(Adam, fused=True))
    assert is_atomic(stepped(SGD, momentum=0.9, fused=True))
    assert not is_atomic(stepped(AdamW, foreach=True))
    assert not is_atomic(stepped(SGD))
    assert not is_atomic(stepped(CustomSGD, fused=True))
    hooked = stepped(AdamW, fused=True)
    hooked.register_step_pre_hook(lambda *_: None)
    assert not is_atomic(hooked), "the hook may write and allocate"
    reset = stepped(AdamW, fused=True)
    reset.state[reset.param_groups[0]["params"][0]].clear()
    assert not is_atomic(reset), "state is allocated again"


def test_fused_updates_have_a_backup_only_before_they_have_state() -> None:
    guard = adamw_guard(fused=True)
    sizes = []
    for seed in range(3):
        guard.step(plain_batch(seed=seed))
        sizes.append(guard.backup_bytes)
    assert sizes[0] > 0
    assert sizes[1:] == [0, 0]
    reset = guard.optimizers[0].state
    reset[next(iter(reset))].clear()
    guard.step(plain_batch())
    assert guard.backup_bytes > 0


def test_a_fused_update_that_fails_before_its_first_write_is_retried() -> None:
    guard, expected = adamw_guard(fused=True), adamw_guard(fused=True)
    for seed in range(3):
        optimizer = guard.optimizers[0]
        with pytest.MonkeyPatch.context() as monkeypatch:
            if seed == 1:
                monkeypatch.setattr(optimizer, "step", FailingCall(optimizer.step, error=oom))
            report = guard.step(plain_batch(seed=seed))
        assert (report.retries, report.fallbacks) == (int(seed == 1), ())
        expected.step(plain_batch(seed=seed))
    assert guard.backup_bytes == 0
    assert differences(guard.state_dict(), expected.state_dict()) == []


@pytest.mark.parametrize("write", ["weights", "state"])
def test_a_fused_update_that_fails_after_its_first_write_ends_the_run(
    write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AdamW counts its steps before it updates weights: a repeated update would count the step twice."""
    guard = adamw_guard(fused=True, checkpoint=tmp_path / "last.pt")
    guard.step(plain_batch())
    optimizer = guard.optimizers[0]
    if write == "weights":
        monkeypatch.setattr(optimizer, "step", FailingCall(optimizer.step, after=True, error=oom))
    else:
        monkeypatch.setattr(torch, "_fused_adamw_", FailingCall(torch._fused_adamw_, error=oom))
    with pytest.raises(oomph.RetriesExhausted) as caught:
        guard.step(plain_batch())
    assert "the weights may be partly updated, so resume from the last checkpoint" in caught.value.why
    assert caught.value.checkpoint is None
    assert not (tmp_path / "last.pt").exists()
    assert {float(entry["step"]) for entry in optimizer.state.values()} == {2.0}, "never repeated"


def test_a_fused_update_that_fails_between_two_groups_ends_the_run() -> None:
    """Fused kernels don't count the versions of the weights, so nothing shows that the first group was updated."""
    net = plain_net()
    first, second = halves(net)
    guard = guard_of(net, optimizer=SGD([{"params": first}, {"params": second}], lr=0.1, fused=True))
    with failing("_fused_sgd_", 2) as kernel, pytest.raises(oomph.RetriesExhausted, match="may be partly updated"):
        guard.step(plain_batch())
    assert kernel.count == 2, "never repeated"


def test_the_backup_is_announced_once_with_the_advice_to_use_fused(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="oomph"):
        guard = adamw_guard()
        for seed in range(3):
            guard.step(plain_batch(seed=seed))
        messages = [record.message for record in caplog.records]
        adamw_guard(fused=True).step(plain_batch())
    assert len(caplog.records) == len(messages) == 1
    assert "backs up AdamW before each update" in messages[0]
    assert "fused=True" in messages[0]


def test_the_announcement_suggests_fused_only_where_it_exists(caplog: pytest.LogCaptureFixture) -> None:
    net = plain_net()
    guard = guard_of(net, optimizer=torch.optim.RMSprop(net.parameters()))
    with caplog.at_level(logging.INFO, logger="oomph"):
        guard.step(plain_batch())
    assert len(caplog.records) == 1
    assert "backs up RMSprop before each update" in caplog.text
    assert "fused" not in caplog.text


@pytest.mark.parametrize("fused", [False, True])
def test_nothing_is_held_after_an_update(*, fused: bool) -> None:
    guard = adamw_guard(fused=fused)
    guard.step(plain_batch())
    guard.step(plain_batch())
    state = guard.optimizers[0].state
    storages = [weakref.ref(param.untyped_storage()) for param in guard.model.parameters()]
    storages += [weakref.ref(value.untyped_storage()) for entry in state.values() for value in entry.values()]
    guard.model.double()
    for entry in state.values():
        entry.update({name: value.clone() for name, value in entry.items()})
    gc.collect()
    assert all(storage() is None for storage in storages)


def second_step_under(cap: int) -> tuple[bool, int]:
    """Run a second step under a cap of bytes; return if it succeeded, and the peak. A failed one changes nothing."""
    torch.manual_seed(0)
    net = nn.Linear(64, 64)
    groups: list[dict[str, Any]] = [{"params": [net.weight]}, {"params": [net.bias], "maximize": True}]
    guard = guard_of(net, optimizer=Adam(groups, lr=0.1, weight_decay=0.1, foreach=True))
    batch = torch.randn(2, 64), torch.randn(2, 64)
    guard.step(batch)
    before = cloned(guard.state_dict())
    with ByteCap(cap) as mode:
        try:
            guard.step(batch)
        except oomph.RetriesExhausted:
            assert differences(guard.state_dict(), before) == []
            return False, mode.peak
    return True, mode.peak


@pytest.mark.medium
def test_an_update_under_any_cap_happens_completely_or_not_at_all() -> None:
    succeeded, peak = second_step_under(1 << 30)
    assert succeeded
    outcomes = [second_step_under(cap)[0] for cap in range(peak // 4, peak + 4096, 4096)]
    assert outcomes == sorted(outcomes), "with more memory it still fits"
    assert set(outcomes) == {True, False}


def fill_cached_memory() -> list[Tensor]:
    """Occupy the gaps between small tensors, in which a step would find room under any cap."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    filler: list[Tensor] = []
    with contextlib.suppress(torch.cuda.OutOfMemoryError):
        while True:
            filler.append(torch.empty(64 << 10, dtype=torch.uint8, device="cuda"))
    return filler


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(4, 2048), (40, 200)], ids=["large tensors", "small tensors"])
@pytest.mark.parametrize("fused", [False, True])
def test_an_update_on_a_crowded_gpu_happens_completely_or_not_at_all(shape: tuple[int, int], *, fused: bool) -> None:
    """Under caps from no free memory to enough for everything."""
    torch.manual_seed(0)
    depth, width = shape
    net = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).cuda()
    batch = torch.randn(4, width).cuda(), torch.randn(4, width).cuda()
    guard = guard_of(net, optimizer=AdamW(net.parameters(), lr=0.1, fused=fused), cooldown_steps=1)
    guard.step(batch)
    start = copy.deepcopy(guard.state_dict())
    guard.step(batch)
    end, total = copy.deepcopy(guard.state_dict()), torch.cuda.get_device_properties(0).total_memory
    weights = sum(param.nbytes for param in net.parameters()) >> 20
    outcomes: list[bool] = []
    retries = 0
    try:
        for spare in range(0, 4 * weights + 22, max(weights // 4, 2)):
            torch.cuda.set_per_process_memory_fraction(1.0)
            guard.load_state_dict(copy.deepcopy(start))
            gc.collect()  # otherwise it may run in the middle of the step and free memory
            torch.cuda.empty_cache()
            filler = fill_cached_memory()
            torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (spare << 20)) / total)
            report = None
            with contextlib.suppress(oomph.RetriesExhausted):
                report = guard.step(batch)
            torch.cuda.set_per_process_memory_fraction(1.0)  # the comparison needs memory, too
            del filler
            outcomes.append(report is not None)
            retries += 1 if report is None else report.retries
            if report is None:
                assert differences(guard.state_dict(), start) == []
            elif report.micro_batches == 1 and "single_tensor" not in fallback_names(report):
                assert differences(guard.state_dict(), end) == []
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert outcomes[-1]
    assert retries, "memory did run out"


def nesterov_guard() -> Guard:
    """Return a guard with an optimizer that writes to the gradients of its first group."""
    net = plain_net()
    first, second = halves(net)
    groups: list[dict[str, Any]] = [{"params": first}, {"params": second, "weight_decay": 0.1}]
    return guard_of(net, optimizer=SGD(groups, lr=0.1, momentum=0.9, nesterov=True, foreach=True))


@contextlib.contextmanager
def failing_sgd(call: int) -> Iterator[FailingCall]:
    """Let one of the operations of a multi-tensor SGD update run out of memory."""
    fail = FailingCall(lambda: None, call, error=oom)

    def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        fail()
        return function(*args, **kwargs)

    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("_foreach_add", "_foreach_add_", "_foreach_mul_"):
            monkeypatch.setattr(torch, name, functools.partial(run, getattr(torch, name)))
        yield fail


@pytest.mark.parametrize(("step", "operations"), [(0, 5), (2, 9)], ids=["first", "later"])
def test_gradients_that_nesterov_momentum_writes_to_are_restored(step: int, operations: int) -> None:
    expected = nesterov_guard()
    for seed in range(3):
        with failing_sgd(0) as counted:
            expected.step(plain_batch(seed=seed))
        assert counted.count == operations or seed != step
    for call in range(1, operations + 1):
        guard = nesterov_guard()
        for seed in range(3):
            with failing_sgd(call if seed == step else 0):
                report = guard.step(plain_batch(seed=seed))
            assert report.retries == (seed == step)
        assert differences(guard.state_dict(), expected.state_dict()) == []


class DataWritingSGD(SGD):
    """Adds a weight decay to `.data` of the gradients, which doesn't change their version."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for param in group["params"]:
                param.grad.data.add_(param.data, alpha=0.1)
        return super().step(closure)


class LateWritingSGD(SGD):
    """Writes to the gradients from its third step on."""

    steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        for group in self.param_groups if self.steps > 2 else ():
            for param in group["params"]:
                param.grad.add_(param.detach(), alpha=0.1)
        return super().step(closure)


class GradReplacingSGD(SGD):
    """Replaces the gradients by other tensors."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for param in group["params"]:
                param.grad = 2 * param.grad + 0.1 * param.detach()
        return super().step(closure)


def write_grads(optimizer: torch.optim.Optimizer, *_: object) -> None:
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad.data.add_(param.data, alpha=0.1)


@pytest.mark.parametrize("kind", [DataWritingSGD, LateWritingSGD, GradReplacingSGD, SGD])
@pytest.mark.parametrize("step", [0, 2])
def test_gradients_that_other_code_changes_are_restored(kind: type[SGD], step: int) -> None:
    states = []
    for fails in (False, True):
        net = plain_net()
        optimizer = kind(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
        if kind is SGD:
            optimizer.register_step_pre_hook(write_grads)
        guard = guard_of(net, optimizer=optimizer)
        for number in range(4):
            with failing_sgd(1 if fails and number == step else 0):
                retries = guard.step(plain_batch(seed=number)).retries
            assert retries == (fails and number == step)
            if fails and number == step and isinstance(optimizer, LateWritingSGD):
                optimizer.steps -= 1  # its own counter is not part of an optimizer's state
        states.append(guard.state_dict())
    assert differences(*states) == []


def test_gradients_are_restored_before_parameters_are_updated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A multi-tensor Nesterov update that always fails has written to the gradients before."""

    def raise_oom(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise oom()

    monkeypatch.setattr(torch, "_foreach_add", raise_oom)
    states = []
    for foreach in (False, True):
        net = plain_net()
        first, second = halves(net)
        groups: list[dict[str, Any]] = [{"params": first}, {"params": second, "weight_decay": 0.1}]
        optimizer = SGD(groups, lr=0.1, momentum=0.9, nesterov=True, foreach=foreach)
        guard = guard_of(net, optimizer=optimizer, cooldown_steps=3)
        reports = [guard.step(plain_batch(seed=seed)) for seed in range(8)]
        assert {len(report.fallbacks) for report in reports} == {2 if foreach else 0}
        states.append(dict(guard.model.state_dict()))
    assert differences(*states) == []


def test_no_gradient_is_held_after_an_update_that_writes_to_it() -> None:
    guard = nesterov_guard()
    storages: list[weakref.ref[Any]] = []

    def note(*_: object) -> None:
        grads = [param.grad for param in guard.model.parameters() if param.grad is not None]
        storages.extend(weakref.ref(grad.untyped_storage()) for grad in grads)

    handle = guard.optimizers[0].register_step_post_hook(note)
    guard.step(plain_batch())
    handle.remove()
    gc.collect()
    assert storages
    assert all(storage() is None for storage in storages)


@pytest.mark.parametrize(("kind", "name"), [(Adam, "_foreach_sqrt"), (SGD, "_foreach_add")])
def test_clipping_inside_the_update_is_not_repeated_on_clipped_gradients(kind: type[Any], name: str) -> None:
    """With several ranks, gradients are averaged first and clipped in the update."""
    states = []
    for call in (0, 1):
        net = plain_net()
        optimizer = kind(net.parameters(), lr=0.1, foreach=True, weight_decay=0.1)
        update = OptimizerStep(net, (optimizer,), GuardConfig(clip_grad_norm=0.01), None, CommitState())
        for number in range(3):
            inputs, targets = plain_batch(seed=number)
            nn.functional.mse_loss(net(inputs), targets).backward()
            with failing(name, call if number == 0 else 0):
                result = update.run(update.prepare_grads)
            assert result.oom is None
            assert result.retries == (call == 1 and number == 0)
            net.zero_grad()
        states.append(net.state_dict())
    assert differences(*states) == []


def test_a_skipped_update_is_reported() -> None:
    net = plain_net()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    guard = guard_of(net, scaler=scaler)
    inputs, targets = plain_batch()
    before = cloned(dict(net.state_dict()))
    assert guard.step((inputs, 1e6 * targets)).skipped is True
    assert differences(dict(net.state_dict()), before) == []
    scaler.update(1.0)
    assert guard.step(plain_batch()).skipped is False


def test_only_the_device_knows_if_a_fused_update_was_skipped() -> None:
    net = plain_net()
    optimizer = SGD(net.parameters(), lr=0.1, fused=True)
    guard = guard_of(net, optimizer=optimizer, scaler=torch.amp.GradScaler("cpu", init_scale=2.0))
    assert guard.step(plain_batch()).skipped is None


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaled_update_with_an_error_is_the_undisturbed_one(*, fused: bool) -> None:
    """In the optimizer, and after it in a scheduler."""
    states = []
    for fails in (False, True):
        net = plain_net()
        optimizer = AdamW(net.parameters(), lr=0.1, fused=fused, foreach=not fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
        scheduler = FailingScheduler(failures=2 if fails else 0)
        guard = guard_of(net, optimizer=optimizer, scaler=scaler, scheduler=scheduler)
        reports = []
        for seed in range(4):
            with FaultIn("_foreach_sqrt", times=1) if fails and seed == 2 else contextlib.nullcontext():
                reports.append(guard.step(plain_batch(seed=seed)))
        assert sum(report.retries for report in reports) == (0 if not fails else 2 if fused else 3)
        states.append(guard.state_dict())
    assert differences(*states) == []


def test_the_norm_of_a_clip_function_is_kept() -> None:
    def clip(parameters: list[Tensor]) -> Tensor:
        return nn.utils.clip_grad_norm_(parameters, 0.1)

    by_norm, by_function = guard_of(plain_net(), clip_grad_norm=0.1), guard_of(plain_net(), clip_grad_norm=clip)
    for guard in (by_norm, by_function):
        guard.step(plain_batch())
    assert float(by_norm.optimizer_step.grad_norm or 0) == float(by_function.optimizer_step.grad_norm or 0) > 0
    assert differences(by_norm.state_dict(), by_function.state_dict()) == []
    silent = guard_of(plain_net(), clip_grad_norm=lambda parameters: None)
    silent.step(plain_batch())
    assert silent.optimizer_step.grad_norm is None


class CountingSgd(torch.optim.Optimizer):
    """An optimizer of the user with a counter and a list in its state; its first update runs out of memory half-way."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})
        self.count = 0
        self.fail = FailingCall(lambda: None)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        del closure
        self.count += 1
        for param in self.param_groups[0]["params"]:
            self.state[param].setdefault("history", []).append(self.count)
            with torch.no_grad():
                param.sub_(0.1 * param.grad)
        self.fail()


def test_counters_and_lists_of_an_optimizer_are_restored() -> None:
    net = plain_net()
    optimizer = CountingSgd(net.parameters())
    guard = guard_of(net, optimizer=optimizer)
    optimizer.fail.call = 0
    guard.step(plain_batch())
    optimizer.fail.call = 2
    assert guard.step(plain_batch()).retries == 1
    assert optimizer.count == 2
    assert all(entry["history"] == [1, 2] for entry in optimizer.state.values())


def double_grads(optimizer: torch.optim.Optimizer, *_: object) -> None:
    for param in optimizer.param_groups[0]["params"]:
        param.grad.mul_(2)


def test_a_global_hook_that_changes_gradients_is_undone() -> None:
    def run(times: int) -> dict[str, Tensor]:
        net = plain_net()
        guard = guard_of(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1, foreach=True))
        handle = register_optimizer_step_pre_hook(double_grads)
        try:
            with FaultIn("_foreach_add_", times=times):
                assert guard.step(plain_batch()).retries == times
        finally:
            handle.remove()
        return dict(net.state_dict())

    assert differences(run(1), run(0)) == []


def test_a_partial_function_as_ema_is_rejected() -> None:
    with pytest.raises(UsageError, match="ema is a function"):
        plain_guard(ema=functools.partial(print, end=""))


def test_the_size_of_a_backup_includes_gradients() -> None:
    net = plain_net()
    size = sum(param.numel() * param.element_size() for param in net.parameters())
    guard = guard_of(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True))
    guard.step(plain_batch())
    guard.step(plain_batch())
    assert guard.backup_bytes == 3 * size, "weights, momentum and gradients"
