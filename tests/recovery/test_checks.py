"""Results that are not exact are announced once; setups that can't be guarded are rejected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import UsageError
from oomph.recovery import Guard

from .faults import FailingCall, FaultAt, FaultIn
from .nets import Rig, cloned, differences, guard_of, plain_batch, plain_guard, plain_net


def count_notices(guard: Guard, text: str = "") -> int:
    return sum(text in notice for notice in guard.notices)


class UserError(Exception):
    """An error that only the user's code knows."""


def test_batch_norm_is_announced_once_and_gets_two_samples() -> None:
    rig = Rig(micro_batch=1)
    for batch in rig.batches(2):
        assert rig.guard.step(batch).micro_batches == 4
    assert count_notices(rig.guard, "BatchNorm") == 1


def test_batch_norm_is_not_announced_if_nothing_is_split() -> None:
    """Neither in a run that is resumed in the middle of an accumulation."""
    rig, resumed = Rig(), Rig()
    first, second = rig.batches(2)
    rig.guard.step(first, update=False)
    saved = cloned(rig.state())
    rig.guard.step(second)
    expected = cloned(rig.state())
    resumed.guard.load_state_dict(saved)
    resumed.guard.step(second)
    assert count_notices(rig.guard) == count_notices(resumed.guard) == 0
    assert differences(resumed.state(), expected) == []


def test_batch_norm_in_eval_mode_is_exact() -> None:
    rig = Rig(micro_batch=1)
    rig.net.norm.eval()
    assert rig.guard.step(rig.batches(1)[0]).micro_batches == 8
    assert count_notices(rig.guard) == 0


def contrastive_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs @ targets.T, torch.arange(len(outputs)))


def test_a_loss_over_pairs_of_samples_is_announced_when_a_batch_is_split() -> None:
    guard = plain_guard(contrastive_loss)
    guard.step(plain_batch())
    assert count_notices(guard) == 0
    with FaultAt([5]):
        assert guard.step(plain_batch()).micro_batches == 2
    assert count_notices(guard, "contrastive") == 1
    for _ in range(2):
        guard.step(plain_batch())
    assert count_notices(guard) == 1


def test_a_mean_over_samples_is_not_announced() -> None:
    guard = plain_guard(micro_batch=4)
    guard.step(plain_batch())
    assert count_notices(guard) == 0


class CenterLoss(nn.Module):
    """A loss with state: a moving center and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(2))
        self.center: Tensor
        self.calls = 0

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        self.center = 0.9 * self.center + 0.1 * outputs.detach().mean(0)
        return nn.functional.mse_loss(outputs - self.center, targets)


def test_a_run_that_is_not_split_calls_its_loss_once_per_step() -> None:
    loss = CenterLoss()
    guard = plain_guard(loss)
    for seed in range(3):
        guard.step(plain_batch(seed=seed))
    assert loss.calls == 3


def test_the_state_of_a_loss_is_part_of_the_step() -> None:
    """The check of the loss doesn't change it, a retry restores it, and a resumed run has it."""
    expected, net = CenterLoss(), plain_net()
    inputs, _ = plain_batch()
    for half in inputs.split(4):
        expected(net(half), torch.zeros(len(half), 2))

    checked = CenterLoss()
    plain_guard(checked, micro_batch=4).step(plain_batch())
    assert checked.calls == 2
    assert torch.equal(checked.center, expected.center)

    retried = CenterLoss()
    guard = plain_guard(retried)
    with FaultIn("mse_loss_backward", times=1):
        assert guard.step(plain_batch()).micro_batches == 2
    assert torch.equal(retried.center, expected.center)

    resumed = CenterLoss()
    plain_guard(resumed).load_state_dict(guard.state_dict())
    assert torch.equal(resumed.center, expected.center)


@pytest.mark.parametrize("error", [RuntimeError, AssertionError, KeyError, UserError])
def test_a_loss_that_rejects_halves_is_not_announced(error: type[Exception]) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if len(outputs) != 4:
            raise error("only four samples at a time")
        return nn.functional.mse_loss(outputs, targets)

    guard = plain_guard(loss, micro_batch=4)
    assert guard.step(plain_batch(8)).micro_batches == 2
    assert count_notices(guard) == 0


def test_a_check_of_the_loss_that_runs_out_of_memory_does_not_disturb_the_step() -> None:
    fail = FailingCall(lambda: None)  # in the first call, which is that of the check

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        fail()
        return nn.functional.mse_loss(outputs, targets)

    guard = plain_guard(loss, micro_batch=4)
    report = guard.step(plain_batch(8))
    assert fail.raised == 1
    assert (report.retries, report.micro_batches) == (0, 2)
    assert count_notices(guard) == 0


def test_a_loss_that_differentiates_is_not_disturbed() -> None:
    def loss(outputs: Tensor, inputs: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        return slope.pow(2).mean() + outputs.pow(2).mean()

    inputs = plain_batch()[0].requires_grad_()
    assert plain_guard(loss).step((inputs, inputs)).micro_batches == 1


def test_lazy_layers_are_rejected_by_name() -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    with pytest.raises(UsageError, match=r"'0\.weight' has no shape yet; run the model on a batch"):
        guard_of(net)
    norm = nn.Sequential(nn.Linear(4, 4), nn.LazyBatchNorm1d(affine=False))
    with pytest.raises(UsageError, match=r"'1\.running_mean' has no shape yet"):
        guard_of(norm)


def test_optimizers_that_need_a_closure_are_rejected_by_name() -> None:
    net = plain_net()
    with pytest.raises(UsageError, match="LBFGS evaluates the loss several times"):
        guard_of(net, optimizer=torch.optim.LBFGS(net.parameters()))


def test_a_batch_that_the_forward_changed_in_place_is_not_retried() -> None:
    """The change would happen twice."""

    def forward(model: nn.Module, batch: Any) -> Tensor:
        batch["image"] /= 255
        return nn.functional.mse_loss(model(batch["image"]), batch["target"])

    inputs, targets = plain_batch()
    guard = plain_guard()
    guard.step({"image": inputs.clone(), "target": targets}, forward=forward)
    before = cloned(dict(guard.model.state_dict()))
    with pytest.raises(UsageError, match=r"changed its batch in place.*x = x / 255"), FaultIn("addmm"):
        guard.step({"image": inputs.clone(), "target": targets}, forward=forward)
    assert differences(dict(guard.model.state_dict()), before) == []


def test_inference_tensors_can_be_retried() -> None:
    """They don't count their versions, but can't be changed in training either."""
    guard = plain_guard(forward=lambda model, batch: model(batch[0].clone()).mean())
    with torch.inference_mode():
        batch = plain_batch()
    with FaultAt([5]):
        report = guard.step(batch)
    assert report.retries == 1


class SeveralNormalizers:
    """Is divided by two numbers of the whole batch."""

    def normalizer(self, batch: Any) -> Any:
        return (batch[1] > 0).sum(), len(batch[1])

    def __call__(self, outputs: Tensor, targets: Tensor, counts: Any) -> Tensor:
        return (outputs - targets).pow(2)[targets > 0].sum() / counts[0] + outputs.sum() / counts[1]


def test_accumulated_batches_with_several_normalizers_are_announced_once() -> None:
    guard = plain_guard(SeveralNormalizers())
    guard.step(plain_batch())
    assert count_notices(guard) == 0, "a single batch is exact"
    for update in (False, False, True):
        guard.step(plain_batch(), update=update)
    assert count_notices(guard, "several normalizers") == 1
