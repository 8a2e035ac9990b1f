"""A saved run continues bit for bit, and a run that must end is saved first."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import RetriesExhausted, UsageError
from oomph.recovery import Guard

from .faults import CUDA_OOM, FaultIn
from .nets import Rig, cloned, differences, guard_of, plain_batch, plain_guard, plain_net


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("updates", [(True,) * 4, (True, False, False, True)], ids=["updates", "accumulated"])
def test_a_resumed_run_continues_bit_for_bit(updates: tuple[bool, ...], tmp_path: Path, *, scaled: bool) -> None:
    def run(rig: Rig, start: int, end: int) -> None:
        for batch, update in list(zip(rig.batches(4), updates, strict=True))[start:end]:
            rig.guard.step(batch, update=update)

    whole = Rig(scaled=scaled)
    run(whole, 0, 4)
    expected = cloned(whole.state())
    first = Rig(scaled=scaled)
    run(first, 0, 2)
    first.guard.save(tmp_path / "run.pt")
    second = Rig(scaled=scaled)
    torch.manual_seed(99)
    second.guard.load(tmp_path / "run.pt")
    run(second, 2, 4)
    assert differences(second.state(), expected) == []


class LearnedLoss(nn.Module):
    """A loss with parameters, which only the optimizer holds, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(2))
        self.register_buffer("calls", torch.zeros(()))
        self.calls: Tensor

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return (outputs * self.weights - targets).pow(2).mean()


def test_a_resumed_run_has_the_parameters_of_the_loss_and_their_gradients() -> None:
    def build() -> tuple[Guard, LearnedLoss]:
        net, loss = plain_net(), LearnedLoss()
        optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=0.1)
        return guard_of(net, optimizer=optimizer, loss=loss), loss

    guard, loss = build()
    guard.step(plain_batch(seed=1))
    guard.step(plain_batch(3, seed=2), update=False)
    other, resumed = build()
    other.load_state_dict(cloned(guard.state_dict()))
    assert other.accumulation.pending == 3.0
    for each in (guard, other):
        each.step(plain_batch(seed=3))
    assert differences(other.state_dict(), guard.state_dict()) == []
    assert torch.equal(loss.weights, resumed.weights)


def test_a_resumed_run_has_parameters_that_only_the_optimizer_holds() -> None:
    def build() -> tuple[Guard, nn.Parameter]:
        net, scale = plain_net(), nn.Parameter(torch.ones(()))
        optimizer = torch.optim.SGD([*net.parameters(), scale], lr=0.1)

        def forward(model: nn.Module, batch: Any) -> Tensor:
            return (model(batch[0]) * scale - batch[1]).pow(2).mean()

        return guard_of(net, optimizer=optimizer, forward=forward), scale

    guard, scale = build()
    guard.step(plain_batch())
    other, resumed = build()
    other.load_state_dict(cloned(guard.state_dict()))
    assert torch.equal(resumed, scale)
    assert float(scale.detach()) != 1.0


class DictEma:
    """An EMA without state_dict(): averages by name and a list of numbers."""

    def __init__(self, model: nn.Module) -> None:
        self.averages = {name: param.detach().clone() for name, param in model.named_parameters()}
        self.rates: list[float] = []

    def update(self, model: nn.Module) -> None:
        self.rates.append(0.1 * len(self.rates) / (1 + len(self.rates)))
        for name, param in model.named_parameters():
            self.averages[name].lerp_(param.detach(), self.rates[-1])

    def weights(self) -> list[Tensor]:
        return list(self.averages.values())


class ModuleEma:
    """An EMA without state_dict(): a module, the trained model, a function and a counter, as that of YOLOv5."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.ema, self.updates = model, copy.deepcopy(model), 0
        self.decay: Callable[[int], float] = lambda updates: 1 - math.exp(-updates / 3)

    def update(self, model: nn.Module) -> None:
        self.updates += 1
        for average, param in zip(self.ema.parameters(), model.parameters(), strict=True):
            average.data.lerp_(param.detach(), 1 - self.decay(self.updates))

    def weights(self) -> list[Tensor]:
        return [param.detach() for param in self.ema.parameters()]


class LateEma:
    """An EMA without state_dict() that allocates its averages in the first update."""

    def __init__(self, model: nn.Module) -> None:
        del model
        self.averages: tuple[Tensor, ...] | None = None

    def update(self, model: nn.Module) -> None:
        if self.averages is None:
            self.averages = tuple(param.detach().clone() for param in model.parameters())
        for average, param in zip(self.averages, model.parameters(), strict=True):
            average.lerp_(param.detach(), 0.3)

    def weights(self) -> list[Tensor]:
        return list(self.averages or ())


def guard_with_ema(kind: Callable[[nn.Module], Any]) -> tuple[Guard, Any]:
    net = plain_net()
    ema = kind(net)
    return guard_of(net, ema=ema), ema


@pytest.mark.parametrize("kind", [DictEma, ModuleEma, LateEma])
def test_an_ema_without_state_dict_continues_bit_for_bit(kind: Callable[[nn.Module], Any], tmp_path: Path) -> None:
    guard, ema = guard_with_ema(kind)
    for seed in range(3):
        guard.step(plain_batch(seed=seed))
    guard.save(tmp_path / "run.pt")
    other, resumed = guard_with_ema(kind)
    other.load(tmp_path / "run.pt")
    assert vars(resumed).keys() == vars(ema).keys()
    for each in (guard, other):
        for seed in range(3, 6):
            each.step(plain_batch(seed=seed))
    assert all(map(torch.equal, ema.weights(), resumed.weights()))
    assert ema.weights()


def test_a_bound_method_as_ema_saves_its_object(tmp_path: Path) -> None:
    net = plain_net()
    ema = DictEma(net)
    guard = guard_of(net, ema=ema.update)
    guard.step(plain_batch())
    guard.save(tmp_path / "run.pt")
    net = plain_net()
    resumed = DictEma(net)
    guard_of(net, ema=resumed.update).load(tmp_path / "run.pt")
    assert all(map(torch.equal, ema.weights(), resumed.weights()))
    assert resumed.rates == [0.0]


def test_the_state_of_another_ema_is_rejected() -> None:
    guard, _ = guard_with_ema(ModuleEma)
    other, _ = guard_with_ema(DictEma)
    with pytest.raises(UsageError, match=r"the DictEma has no 'ema', which the saved one has; create the guard as"):
        other.load_state_dict(guard.state_dict())


@pytest.mark.parametrize("content", [b"nothing", None])
def test_files_that_are_not_checkpoints_are_rejected(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with pytest.raises(oomph.MissingFile, match="there is no file"):
        plain_guard().load(path)
    if content is None:
        torch.save({"weights": 1}, path)
    else:
        path.write_bytes(content)
    with pytest.raises(oomph.InvalidFile, match="is not a checkpoint"):
        plain_guard().load(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(oomph.MissingFile, match="there is no folder"):
        plain_guard().save(tmp_path / "nowhere" / "x.pt")


def test_incomplete_and_other_states_are_rejected() -> None:
    guard = plain_guard()
    with pytest.raises(UsageError, match="the state has version None; this oomph reads version 1"):
        guard.load_state_dict({})
    with pytest.raises(UsageError, match="the state has no 'model'; pass the complete result of state_dict"):
        guard.load_state_dict({"guard": {"version": 1}})
    with pytest.raises(UsageError, match="the state has no 'steps'"):
        guard.load_state_dict({**guard.state_dict(), "guard": {"version": 1}})
    net = plain_net()
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (net[0], net[2])]
    with pytest.raises(UsageError, match="the state has 1 optimizers and the guard has 2"):
        guard_of(net, optimizer=optimizers).load_state_dict(guard.state_dict())


def test_a_checkpoint_contains_only_plain_containers_and_tensors(tmp_path: Path) -> None:
    rig = Rig(scaled=True)
    rig.guard.step(rig.batches(1)[0])
    rig.guard.save(tmp_path / "run.pt")
    state = torch.load(tmp_path / "run.pt", weights_only=True)
    assert differences(state, rig.state()) == []


def test_a_run_that_does_not_fit_is_saved_before_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    guard = plain_guard(checkpoint=path)
    guard.step(plain_batch())
    before = cloned(dict(guard.model.state_dict()))
    with pytest.raises(RetriesExhausted, match=r"last\.pt") as caught, FaultIn("addmm"):
        guard.step(plain_batch())
    assert caught.value.checkpoint == str(path)
    assert caught.value.exit_code == 3
    other = plain_guard()
    other.load(path)
    assert other.steps == 1
    assert differences(dict(other.model.state_dict()), before) == []
    assert [file.name for file in tmp_path.iterdir()] == ["last.pt"]


def test_an_update_that_does_not_fit_is_saved_as_before_the_step(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    rig = Rig(checkpoint=path)
    batches = rig.batches(2)
    rig.guard.step(batches[0])
    before = cloned(rig.state())
    with pytest.raises(RetriesExhausted, match=r"last\.pt"), FaultIn("addcdiv"):
        rig.guard.step(batches[1])
    assert differences(rig.state(), before) == []
    resumed = Rig()
    resumed.guard.load(path)
    assert differences(resumed.state(), before) == []


def out_of_memory(model: nn.Module, batch: Any) -> Tensor:
    del model, batch
    raise torch.OutOfMemoryError(CUDA_OOM)


def test_a_function_can_save_the_run() -> None:
    saved: list[int] = []
    guard = plain_guard(checkpoint=lambda guard: saved.append(guard.steps))
    guard.step(plain_batch())
    with pytest.raises(RetriesExhausted, match="the run was saved to the place that checkpoint= chose"):
        guard.step(plain_batch(), forward=out_of_memory)
    assert saved == [1]


def test_an_emergency_checkpoint_that_fails_does_not_hide_the_error(caplog: pytest.LogCaptureFixture) -> None:
    def save(guard: Guard) -> None:
        raise OSError(f"no space left at step {guard.steps}")

    with caplog.at_level(logging.ERROR, logger="oomph"), pytest.raises(RetriesExhausted, match="did not save the run"):
        plain_guard(checkpoint=save).step(plain_batch(), forward=out_of_memory)
    assert "The emergency checkpoint could not be written: no space left at step 0" in caplog.text


class PlainScheduler:
    """A scheduler of the user, without a state_dict()."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.rate = optimizer, 0.1

    def step(self) -> None:
        self.rate /= 2
        self.optimizer.param_groups[0]["lr"] = np.float64(self.rate)


def test_a_scheduler_without_state_dict_continues(tmp_path: Path) -> None:
    def create() -> tuple[Guard, PlainScheduler]:
        net = plain_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scheduler = PlainScheduler(optimizer)
        return guard_of(net, optimizer=optimizer, scheduler=scheduler), scheduler

    guard, _ = create()
    guard.step(plain_batch())
    guard.save(tmp_path / "run.pt")
    resumed, scheduler = create()
    resumed.load(tmp_path / "run.pt")
    assert scheduler.rate == 0.05
    assert type(resumed.optimizers[0].param_groups[0]["lr"]) is float, "a NumPy scalar could not be loaded"


class ListOfModulesEma:
    """An EMA whose state can't be saved."""

    def __init__(self) -> None:
        self.models = [plain_net()]

    def update(self, model: nn.Module) -> None:
        del model


def test_what_a_checkpoint_lacks_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="oomph"):
        plain_guard(ema=ListOfModulesEma()).save(tmp_path / "run.pt")
    assert "The checkpoint lacks 'models' of ListOfModulesEma" in caplog.text


def test_a_rejected_state_changes_nothing() -> None:
    guard, _ = guard_with_ema(ModuleEma)
    guard.step(plain_batch())
    other, _ = guard_with_ema(DictEma)
    before = copy.deepcopy(other.model.state_dict())
    with pytest.raises(UsageError, match="has no"):
        other.load_state_dict(guard.state_dict())
    assert differences(dict(other.model.state_dict()), dict(before)) == []
    scheduled = plain_guard()
    with pytest.raises(UsageError, match="the state has 1 schedulers and the guard has 0"):
        scheduled.load_state_dict({**scheduled.state_dict(), "schedulers": [{}]})
