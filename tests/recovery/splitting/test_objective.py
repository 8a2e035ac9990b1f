"""The loss of a micro-batch: from a loss function, from a user's forward, or from the model itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.recovery.splitting import Objective
from oomph.recovery.splitting._objective import label_counts

from ..nets import plain_batch, plain_net

mse_loss = nn.functional.mse_loss


def pairwise_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return mse_loss(outputs, targets)


def test_a_loss_receives_the_outputs_and_the_second_of_a_pair() -> None:
    net, batch = plain_net(), plain_batch()
    objective = Objective(net, pairwise_loss)
    outputs = objective.outputs(batch)
    assert torch.equal(outputs, net(batch[0]))
    assert objective.targets(batch) is batch[1]
    assert torch.equal(objective.loss(outputs, batch), mse_loss(outputs, batch[1]))
    assert objective.has_outputs(outputs)
    assert not objective.has_forward


def test_a_forward_that_returns_a_scalar_replaces_the_loss() -> None:
    objective = Objective(plain_net(), pairwise_loss, lambda model, batch: model(batch[0]).mean())
    outputs = objective.outputs(plain_batch())
    assert objective.loss(outputs, plain_batch()) is outputs
    assert not objective.has_outputs(outputs)


def test_a_forward_that_returns_outputs_is_followed_by_the_loss() -> None:
    batch = plain_batch()
    objective = Objective(plain_net(), pairwise_loss, lambda model, batch: 2 * model(batch[0]))
    outputs = objective.outputs(batch)
    assert objective.has_outputs(outputs)
    assert torch.equal(objective.loss(outputs, batch), mse_loss(2 * plain_net()(batch[0]), batch[1]))


def test_a_loss_beside_a_forward_receives_a_batch_that_is_no_pair() -> None:
    inputs, targets = plain_batch()
    batch = {"x": inputs, "y": targets}
    objective = Objective(plain_net(), lambda outputs, batch: mse_loss(outputs, batch["y"]), lambda m, b: m(b["x"]))
    assert objective.targets(batch) is batch
    assert torch.equal(objective.loss(objective.outputs(batch), batch), mse_loss(plain_net()(inputs), targets))


@dataclass
class Outputs:
    logits: Tensor
    loss: Tensor


OWN_LOSSES: dict[str, Callable[[Tensor], Any]] = {
    "attribute": lambda loss: Outputs(loss.new_zeros(3), loss),
    "entry": lambda loss: {"logits": loss.new_zeros(3), "loss": loss},
    "first of a tuple": lambda loss: (loss, loss.new_zeros(3)),
    "tensor": lambda loss: loss,
    "sum": lambda loss: SimpleNamespace(loss=oomph.LossSum(loss, 3)),
}


@pytest.mark.parametrize("form", OWN_LOSSES)
def test_a_model_returns_its_own_loss(form: str) -> None:
    class OwnLoss(nn.Linear):
        def forward(self, inputs: Tensor, labels: Tensor) -> Any:  # type: ignore[override]
            return OWN_LOSSES[form](mse_loss(super().forward(inputs), labels))

    torch.manual_seed(0)
    net, (inputs, labels) = OwnLoss(4, 2), plain_batch()
    objective, batch = Objective(net, None), {"inputs": inputs, "labels": labels}
    assert objective.returns_own_loss
    loss = objective.loss(objective.outputs(batch), batch)
    value = loss.total if isinstance(loss, oomph.LossSum) else loss
    assert torch.equal(value, mse_loss(nn.functional.linear(inputs, net.weight, net.bias), labels))


@pytest.mark.parametrize("outputs", [torch.zeros(3), {"logits": torch.zeros(3)}, (torch.zeros(3),), [], None])
def test_a_model_without_a_loss_is_named(outputs: Any) -> None:
    with pytest.raises(UsageError, match=rf"returned a {type(outputs).__name__} without a loss; give the guard loss="):
        Objective(plain_net(), None).loss(outputs, {})


def test_a_batch_that_is_no_pair_needs_a_forward() -> None:
    with pytest.raises(UsageError, match=r"the batch is a dict, not a pair.*forward="):
        Objective(plain_net(), pairwise_loss).outputs({"x": torch.zeros(2)})


def test_torchs_losses_are_sums_with_counts_when_split() -> None:
    batch = plain_batch()
    objective = Objective(plain_net(), mse_loss)
    outputs = objective.outputs(batch)
    part = objective.split_loss(outputs, batch)
    assert isinstance(part, oomph.LossSum)
    torch.testing.assert_close(part.total / part.count, objective.loss(outputs, batch))
    summed = Objective(plain_net(), nn.MSELoss(reduction="sum"))
    assert torch.equal(summed.split_loss(outputs, batch), mse_loss(outputs, batch[1], reduction="sum"))
    assert (objective.reduction, summed.reduction) == ("mean", "sum")


def test_a_declared_reduction_is_used_for_torchs_losses_too() -> None:
    objective = Objective(plain_net(), mse_loss, reduction="mean")
    assert objective.torch_loss is None
    assert isinstance(objective.split_loss(torch.zeros(8, 2), plain_batch()), Tensor)


def test_a_normalizer_belongs_to_the_forward_or_to_the_loss() -> None:
    class Normalized:
        weight_by_samples = True

        def normalizer(self, batch: Any) -> int:
            return len(batch[0])

        def __call__(self, outputs: Any, other: Any, count: int) -> Tensor:
            first = outputs(other[0]) if isinstance(outputs, nn.Module) else outputs
            return first.sum() / count

    batch = plain_batch()
    of_loss, of_forward = Objective(plain_net(), Normalized()), Objective(plain_net(), mse_loss, Normalized())
    for objective in (of_loss, of_forward):
        assert objective.normalizer is not None
        assert objective.weight_by_samples
        extra = (objective.normalizer(batch),)
        loss = objective.loss(objective.outputs(batch, extra), batch, extra)
        torch.testing.assert_close(loss, plain_net()(batch[0]).sum() / 8)


def test_a_lambda_that_each_step_creates_anew_is_the_same_forward() -> None:
    objective = Objective(plain_net(), None)
    keys = {objective.with_forward(lambda model, batch: model(batch[0]).mean()).key for _ in range(3)}
    assert len(keys) == 1
    assert objective.with_forward(lambda model, batch: model(batch[0]).sum()).key not in keys
    assert objective.with_forward(objective.outputs).model is objective.model


def test_labels_are_counted_in_the_ways_of_transformers() -> None:
    labels = torch.tensor([[1, 2, -100], [-100, -100, 5]])
    assert [int(count({"labels": labels})) for count in label_counts({"labels": labels})] == [3, 2]
    assert [int(count({"labels": labels[0]})) for count in label_counts({"labels": labels[0]})] == [2]
    assert [int(count((None, labels))) for count in label_counts((None, labels))] == [3, 2]
    assert list(label_counts({"labels": [1, 2]})) == list(label_counts((labels, labels.float()))) == []


def test_the_output_of_one_sample_is_no_loss() -> None:
    model = nn.Linear(3, 1)
    objective = Objective(model, nn.functional.mse_loss, lambda model, batch: model(batch[0]))
    batch = torch.ones(1, 3), torch.zeros(1, 1)
    outputs = objective.outputs(batch)
    assert outputs.numel() == 1
    assert objective.has_outputs(outputs)
    assert objective.loss(outputs, batch) == nn.functional.mse_loss(outputs, batch[1])
    returns_loss = Objective(model, nn.functional.mse_loss, lambda model, batch: model(batch[0]).sum())
    assert returns_loss.loss(returns_loss.outputs(batch), batch) == outputs.sum()
