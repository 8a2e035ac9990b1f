"""Results that are not exact are announced once; setups that can't be guarded are rejected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import UsageError
from oomph.recovery import Guard

from .faults import FaultAt, FaultIn
from .nets import Rig, cloned, differences, guard_of, plain_batch, plain_guard, plain_net


def count_notices(guard: Guard, text: str = "") -> int:
    return sum(text in notice for notice in guard.notices)


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
    assert count_notices(rig.guard, "BatchNorm") == 0


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


class TwoStepOptimizer(torch.optim.SGD):
    """Has the interface of SAM."""

    def first_step(self) -> None:
        raise NotImplementedError

    second_step = first_step


def test_optimizers_with_two_steps_are_rejected_by_name() -> None:
    net = plain_net()
    with pytest.raises(UsageError, match=r"TwoStepOptimizer computes gradients twice.*use guard\.backward"):
        guard_of(net, optimizer=TwoStepOptimizer(net.parameters(), lr=0.1))


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


def test_a_batch_that_the_forward_changes_in_place_is_changed_once() -> None:
    def forward(model: nn.Module, batch: Any) -> Tensor:
        batch[0].div_(2)
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    inputs, targets = plain_batch()
    for micro_batch in (None, 4):
        guard, batch = guard_of(plain_net(), forward=forward, micro_batch=micro_batch), (inputs.clone(), targets)
        loss = guard.step(batch).loss
        assert torch.equal(batch[0], inputs / 2)
        torch.testing.assert_close(loss, nn.functional.mse_loss(plain_net()(inputs / 2), targets))


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
