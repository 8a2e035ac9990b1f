"""The guard in a user's loop: errors of user code, everything that is trained, several guards, the Record."""

from __future__ import annotations

import copy
import inspect
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.monitor import load_record
from oomph.recovery import Guard
from oomph.recovery._config import GuardConfig

from .faults import OOM_ERRORS, FailingCall, FaultAt, in_split_check
from .nets import Rig, cloned, differences, guard_of, plain_batch, plain_guard, plain_net


def test_the_guard_and_its_recorder_are_exported_at_the_root() -> None:
    from oomph import monitor, recovery

    assert oomph.Recorder is monitor.Recorder
    assert oomph.guard is recovery.guard
    assert {"Recorder", "guard", "LossSum", "StepReport", "Transaction", "split_batch"} <= set(oomph.__all__)


def test_every_option_is_passed_on() -> None:
    options = set(inspect.signature(oomph.guard).parameters) - {"model", "optimizer", "loss", "plan"}
    fields = {name.replace("schedulers", "scheduler") for name in GuardConfig.__dataclass_fields__}
    assert options == fields


class UserError(Exception):
    """An error that only the user's code knows."""


def test_an_error_of_the_user_propagates_once_with_its_own_traceback() -> None:
    calls = []

    def failing(model: nn.Module, batch: Any) -> Tensor:
        model(batch[0])
        calls.append(in_split_check())
        raise UserError("the label is 7")

    rig = Rig()
    before = cloned(rig.state())
    with pytest.raises(UserError, match="the label is 7") as caught:
        rig.guard.step(rig.batches(1)[0], forward=failing)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "failing"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert calls.count(False) == 1
    assert differences(rig.state(), before) == []


AMBIGUOUS = [
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if the input is not contiguous."),
    RuntimeError("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasSgemm`"),
    RuntimeError("GET was unable to find an engine to execute this computation"),
    MemoryError("my cache is full"),
]


@pytest.mark.parametrize("error", AMBIGUOUS, ids=["cudnn", "cublas", "engine", "user"])
def test_an_error_that_may_not_be_about_memory_ends_the_run_as_itself(error: Exception, tmp_path: Path) -> None:
    def failing(model: nn.Module, batch: Any) -> Tensor:
        del model, batch
        raise error

    rig = Rig(checkpoint=tmp_path / "last.pt")
    before = cloned(rig.state())
    with pytest.raises(type(error)) as caught:
        rig.guard.step(rig.batches(1)[0], forward=failing)
    assert caught.value is error
    assert traceback.extract_tb(error.__traceback__)[-1].name == "failing"
    assert error.__context__ is None
    assert differences(rig.state(), before) == []
    assert (tmp_path / "last.pt").exists(), "it may have been memory"
    with pytest.raises(type(error)) as caught:
        rig.guard.evaluate(rig.batches(1), failing)
    assert caught.value is error


def test_an_ambiguous_error_that_passes_is_survived() -> None:
    """The final attempt raises such an error with its own traceback, or succeeds."""
    remaining = [3]

    def forward(model: nn.Module, batch: Any) -> Tensor:
        remaining[0] -= not in_split_check()
        if remaining[0] >= 0 and not in_split_check():
            raise MemoryError("my cache is full")
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    guard = plain_guard(forward=forward)
    report = guard.step(plain_batch(2))
    assert [fallback.name for fallback in report.fallbacks][:2] == ["micro_batch", "collect_garbage"]
    assert report.updated
    assert guard.steps == 1


class LearnedLoss(nn.Module):
    """A loss with parameters, which only the optimizer holds."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(2, dtype=torch.float64))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs * self.weights - targets).pow(2).mean()


def double_batch(samples: int = 8, seed: int = 1) -> tuple[Tensor, Tensor]:
    return plain_batch(samples, seed, torch.float64)


class FailingBackward:
    """A forward with a backward that runs out of memory in a micro-batch; 0 for none."""

    def __init__(self, loss: Any, micro_batch: int) -> None:
        self.loss, self.fail = loss, FailingCall(lambda grad: grad, micro_batch)

    def __call__(self, model: nn.Module, batch: Any) -> Any:
        outputs = model(batch[0])
        if outputs.requires_grad:
            outputs.register_hook(self.fail)
        return self.loss(outputs, batch[1])


def test_a_retry_does_not_double_the_gradients_of_a_loss_with_parameters() -> None:
    def build(micro_batch: int) -> tuple[Guard, LearnedLoss]:
        net, loss = plain_net(torch.float64), LearnedLoss()
        optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=0.1)
        return guard_of(net, optimizer=optimizer, loss=loss, micro_batch=micro_batch), loss

    undisturbed, expected = build(2)
    undisturbed.step(double_batch(), forward=FailingBackward(expected, 0))
    guard, loss = build(4)
    report = guard.step(double_batch(), forward=FailingBackward(loss, 2))
    assert (report.retries, report.micro_batches) == (1, 4)
    assert torch.equal(loss.weights, expected.weights)


def test_a_retry_does_not_double_the_gradients_of_layers_that_were_unfrozen() -> None:
    nets = [plain_net(torch.float64), plain_net(torch.float64)]
    for net, micro_batch, failure in ((nets[0], 2, 0), (nets[1], 4, 2)):
        net[0].requires_grad_(requires_grad=False)
        guard = guard_of(net, micro_batch=micro_batch)
        net[0].requires_grad_(requires_grad=True)
        guard.step(double_batch(), forward=FailingBackward(nn.functional.mse_loss, failure))
    assert differences(dict(nets[0].state_dict()), dict(nets[1].state_dict())) == []


def test_unfrozen_and_added_parameters_are_accumulated() -> None:
    net, plain = plain_net(torch.float64), plain_net(torch.float64)
    net[0].requires_grad_(requires_grad=False)
    optimizer = torch.optim.SGD(net[0].parameters(), lr=0.0)
    scale, plain_scale = (nn.Parameter(torch.ones((), dtype=torch.float64)) for _ in range(2))

    def forward(model: nn.Module, batch: Any) -> Tensor:
        return (model(batch[0]) * scale - batch[1]).pow(2).mean()

    guard = guard_of(net, optimizer=optimizer, forward=forward)
    net[0].requires_grad_(requires_grad=True)
    optimizer.add_param_group({"params": [scale]})
    inputs, targets = double_batch()
    guard.step((inputs[:3], targets[:3]), update=False)
    guard.step((inputs[3:], targets[3:]), update=False)
    (plain(inputs) * plain_scale - targets).pow(2).mean().backward()
    for param, expected in zip([*net.parameters(), scale], [*plain.parameters(), plain_scale], strict=True):
        torch.testing.assert_close(param.grad, expected.grad, rtol=1e-12, atol=1e-14)


def test_two_guards_of_a_gan_leave_each_other_no_gradients() -> None:
    """The generator's loss has gradients for the discriminator, too, which its optimizer doesn't update."""

    def build() -> tuple[nn.ModuleDict, list[torch.optim.Optimizer]]:
        torch.manual_seed(0)
        nets = nn.ModuleDict({"generator": nn.Linear(4, 4), "discriminator": nn.Linear(4, 1)})
        return nets, [torch.optim.SGD(nets[name].parameters(), lr=0.1) for name in ("discriminator", "generator")]

    def discriminate(model: Any, batch: Any) -> Any:
        fake, real = model["generator"](batch[0]).detach(), batch[0]
        return model["discriminator"](fake).mean() - model["discriminator"](real).mean()

    def generate(model: Any, batch: Any) -> Any:
        return -model["discriminator"](model["generator"](batch[0])).tanh().mean()

    losses = (discriminate, generate)
    guarded, optimizers = build()
    guards = [
        guard_of(guarded, optimizer=optimizer, forward=loss) for optimizer, loss in zip(optimizers, losses, strict=True)
    ]
    plain, plain_optimizers = build()
    for seed in range(3):
        batch = plain_batch(seed=seed)
        for guard in guards:
            guard.step(batch)
        for optimizer, loss in zip(plain_optimizers, losses, strict=True):
            plain.zero_grad()
            loss(plain, batch).backward()
            optimizer.step()
    assert differences(dict(guarded.state_dict()), dict(plain.state_dict())) == []
    assert all(param.grad is None for param in guarded.parameters())


def test_gradients_of_a_replaced_parameter_are_cleared() -> None:
    """Loops that grow a model replace a parameter in the model and in the optimizer's list."""
    states = []
    for replaces in (True, False):
        net = plain_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        guard = guard_of(net, optimizer=optimizer)
        guard.step(plain_batch())
        if replaces:
            weight = nn.Parameter(net.get_parameter("0.weight").detach().clone())
            net[0].weight = optimizer.param_groups[0]["params"][0] = weight
        for seed in range(2):
            guard.step(plain_batch(seed=seed))
            assert all(param.grad is None for param in net.parameters())
        states.append(guard.state_dict())
    assert differences(*states) == []


def test_a_guard_cannot_be_copied() -> None:
    """A copy would update the EMA of the original."""
    guard = plain_guard()
    with pytest.raises(UsageError, match="a guard can't be copied; create another one for the copy of the model"):
        copy.deepcopy(guard)


def test_the_record_has_steps_and_out_of_memory_errors(tmp_path: Path) -> None:
    with oomph.Recorder(tmp_path / "run.jsonl") as recorder:
        guard = plain_guard(recorder=recorder)
        guard.step(plain_batch())
        with FaultAt([3], OOM_ERRORS[1]):
            guard.step(plain_batch())
    record = load_record(tmp_path / "run.jsonl")
    assert [step["retries"] for step in record.steps] == [0, 1]
    assert record.steps[1]["micro_batches"] == 2
    assert record.steps[0]["loss"] > 0
    (event,) = [event for event in record.events if event["event"] == "oom"]
    assert event["kind"] == "cpu-out-of-memory"
    assert (event["micro_batches"], event["step"]) == (1, 1)


def test_a_report_describes_the_step() -> None:
    guard = plain_guard()
    report = guard.step(plain_batch())
    assert (report.micro_batches, report.retries, report.fallbacks) == (1, 0, ())
    assert report.updated
    assert report.skipped is False
    assert report.seconds > 0
    assert report.peak_bytes is not None
    assert not guard.step(plain_batch(), update=False).updated
    with FaultAt([3]):
        report = guard.step(plain_batch())
    assert [str(fallback) for fallback in report.fallbacks] == ["2 micro-batches of up to 4 samples (smaller kernels)"]


def test_a_forward_can_see_that_it_is_only_checked() -> None:
    seen = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        seen.append((guard.is_checking, in_split_check()))
        return nn.functional.mse_loss(model(batch[0]), batch[1]).square()

    guard = plain_guard()
    for _ in range(2):
        guard.step(plain_batch(), forward=forward)
    assert {checked for checked, _ in seen} == {True, False}
    assert all(checked == in_check for checked, in_check in seen)
    assert not guard.is_checking
