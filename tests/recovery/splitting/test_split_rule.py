"""The check of the first step: it knows which losses can be split exactly, and leaves no traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.recovery import Guard
from oomph.recovery.splitting import SplitRule

from ..faults import FailingCall, in_split_check
from ..nets import NoisyNet, Rig, cloned, differences, guard_of, plain_batch, plain_guard, plain_net

F = nn.functional


def find_rule(guard: Guard, batch: Any = None) -> SplitRule:
    return guard._batches.splits._check.find_rule(guard._batches.objective, plain_batch() if batch is None else batch)


def rule_of_forward(forward: Callable[..., Any], **options: Any) -> SplitRule:
    return find_rule(plain_guard(None, forward=forward, **options))


def contrastive(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]) @ batch[1].T, torch.arange(len(batch[0])))


@pytest.mark.parametrize("loss", [F.mse_loss, nn.L1Loss(), nn.BCEWithLogitsLoss(), nn.MSELoss(reduction="sum")])
def test_torchs_losses_are_not_called(loss: Any) -> None:
    guard = plain_guard(loss)
    guard.model.register_forward_pre_hook(lambda *_: pytest.fail("the model was called"))
    rule = find_rule(guard)
    assert (rule.problem, rule.passes) == ("", 1)


def test_weights_as_long_as_the_batch_are_noticed() -> None:
    batch = torch.randn(3, 4), torch.rand(3, 2)
    per_class = nn.BCEWithLogitsLoss(pos_weight=torch.rand(2))
    per_sample = nn.BCEWithLogitsLoss(weight=torch.rand(3, 1))
    rule = find_rule(plain_guard(per_class), batch)
    assert (rule.problem, rule.passes) == ("", 1)
    rule = find_rule(plain_guard(per_sample), batch)
    assert rule.problem or rule.passes == 2


def test_a_mean_over_samples_is_split_in_one_pass() -> None:
    rule = rule_of_forward(lambda model, batch: F.mse_loss(model(batch[0]), batch[1]))
    assert (rule.problem, rule.passes) == ("", 1)
    assert rule.needs_repeats, "a later batch may have padding"


def test_a_sum_is_recognized_and_asks_for_its_declaration() -> None:
    def forward(model: nn.Module, batch: Any) -> Tensor:
        return F.mse_loss(model(batch[0]), batch[1], reduction="sum")

    rule = rule_of_forward(forward)
    assert "it is not a mean over samples" in rule.problem
    assert rule.fix == 'it is a sum: say reduction="sum"'
    assert rule_of_forward(forward, reduction="sum").problem == ""
    assert "it is not a mean" in rule_of_forward(forward, reduction="mean").problem


@pytest.mark.parametrize("reduction", [None, "mean", "sum"])
def test_a_loss_over_pairs_of_samples_is_neither(reduction: str | None) -> None:
    rule = rule_of_forward(contrastive, reduction=reduction)
    assert f"it is not a {reduction or 'mean'} over samples" in rule.problem
    # Integrations print it too, and have neither of these options.
    assert rule.fix.startswith("in a loop with oomph.guard, let forward= return the outputs")


def test_padding_that_only_later_samples_have_is_noticed() -> None:
    """The first halves are alike: the padding is in the second half."""

    def forward(model: nn.Module, batch: Any) -> Tensor:
        return (model(batch[0]) - batch[1])[batch[1] > -1].pow(2).mean()

    inputs, targets = plain_batch()
    targets[4:, 0] = -5
    assert "it is not a mean" in find_rule(plain_guard(None, forward=forward), (inputs, targets)).problem


def test_a_loss_sum_of_a_forward_needs_no_comparison() -> None:
    rule = rule_of_forward(lambda model, batch: oomph.LossSum(model(batch[0]).exp().sum(), 3))
    assert (rule.problem, rule.passes) == ("", 1)


def test_random_numbers_hide_whether_a_loss_is_a_mean() -> None:
    def forward(model: nn.Module, batch: Any) -> Tensor:
        return F.mse_loss(model(batch[0] + torch.randn_like(batch[0])), batch[1])

    rule = rule_of_forward(forward)
    assert "draws random numbers" in rule.problem
    assert 'say reduction="mean"' in rule.fix
    assert rule_of_forward(forward, reduction="mean").problem == ""


def test_dropout_does_not_hide_it() -> None:
    net = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))
    assert find_rule(guard_of(net, forward=lambda model, batch: model(batch[0]).mean())).problem == ""


@pytest.mark.parametrize("samples", [1, 8])
def test_what_a_batch_cannot_show_is_checked_again(samples: int) -> None:
    guard = plain_guard(None, forward=lambda model, batch: model(batch[0]).mean() * float("nan"))
    rule = find_rule(guard, plain_batch(samples))
    assert rule.problem
    assert not rule.is_final


def test_a_check_without_memory_compares_smaller_parts() -> None:
    sizes: list[int] = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        sizes.append(len(batch[0]))
        if len(batch[0]) > 4:
            raise MemoryError
        return F.mse_loss(model(batch[0]), batch[1])

    assert rule_of_forward(forward).problem == ""
    assert sizes == [8, 4, 2, 2]


def test_a_check_of_the_loss_that_runs_out_of_memory_does_not_disturb_the_step() -> None:
    fail = FailingCall(lambda: None, in_check=True)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        fail()
        return F.mse_loss(outputs, targets)

    guard = plain_guard(loss, micro_batch=4)
    report = guard.step(plain_batch(8))
    assert fail.raised == 1
    assert (report.retries, report.micro_batches) == (0, 2)
    assert guard.notices == ()


def test_a_model_that_has_no_loss_in_eval_mode_is_checked_in_training_mode() -> None:
    """As torchvision's detection models; BatchNorm and dropout are quiet all the same."""

    class TrainingLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))

        def forward(self, x: Tensor) -> Tensor:
            if not self.training:
                raise ValueError("no loss in eval mode")
            return self.layers(x).mean()

    net = TrainingLoss()
    assert find_rule(guard_of(net, forward=lambda model, batch: model(batch[0]))).problem == ""
    assert all(module.training for module in net.modules())


class UserError(Exception):
    """An error that only the user's code knows."""


@pytest.mark.parametrize("error", [RuntimeError, AssertionError, KeyError, UserError])
def test_a_loss_that_rejects_halves_is_split_only_if_it_is_declared(error: type[Exception]) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if len(outputs) != 4:
            raise error("only four samples at a time")
        return F.mse_loss(outputs, targets)

    guard = plain_guard(loss, micro_batch=4, reduction="mean")
    assert guard.step(plain_batch(8)).micro_batches == 2
    assert guard.notices == ()
    with pytest.raises(UsageError, match=r"it can't be checked .*only four samples at a time.*say reduction="):
        plain_guard(loss, micro_batch=4).step(plain_batch(8))


def test_a_loss_that_differentiates_is_not_disturbed() -> None:
    def loss(outputs: Tensor, inputs: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        return slope.pow(2).mean() + outputs.pow(2).mean()

    inputs = plain_batch()[0].requires_grad_()
    assert plain_guard(loss).step((inputs, inputs)).micro_batches == 1


def any_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets.mean(0)).pow(2).mean()


def test_any_loss_of_outputs_takes_two_passes() -> None:
    rule = find_rule(plain_guard(any_loss))
    assert (rule.problem, rule.passes) == ("", 2)
    forward = plain_guard(any_loss, forward=lambda model, batch: model(batch[0]))
    assert find_rule(forward).passes == 2


def test_outputs_that_depend_on_other_samples_are_noticed() -> None:
    class Centered(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs - inputs.mean(0))

    rule = find_rule(guard_of(Centered(4, 2), loss=any_loss))
    assert "outputs for a sample depend on the other samples" in rule.problem


def test_outputs_that_do_not_lie_along_the_batch_are_noticed() -> None:
    net = nn.Sequential(nn.Linear(4, 2), nn.Flatten(0))
    rule = find_rule(guard_of(net, loss=lambda outputs, targets: (outputs - targets.flatten()).pow(2).amax()))
    assert rule.problem


class LanguageModel(nn.Module):
    """Returns its loss, a mean over labels that aren't -100, as transformers' models do."""

    def __init__(self, *, counts_items: bool = True) -> None:
        super().__init__()
        self.embedding, self.head, self.counts_items = nn.Embedding(10, 4), nn.Linear(4, 10), counts_items

    def forward(self, tokens: Tensor, labels: Tensor, **keywords: Any) -> dict[str, Tensor]:
        if keywords and not self.counts_items:
            raise TypeError("unexpected keyword argument")
        logits = self.head(self.embedding(tokens)).flatten(0, 1)
        count = keywords.get("num_items_in_batch", (labels != -100).sum())
        return {"loss": F.cross_entropy(logits, labels.flatten(), reduction="sum") / count}


def language_batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 10, (8, 5), generator=generator)
    labels = tokens.clone()
    labels[4:, 1:] = -100
    return {"tokens": tokens, "labels": labels}


def test_models_that_take_the_number_of_labels_are_exact() -> None:
    torch.manual_seed(0)
    net = LanguageModel().double()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    guard = oomph.guard(model=net, optimizer=optimizer, micro_batch=2)
    before = cloned(dict(net.state_dict()))
    loss = net(**language_batch())["loss"]
    grads = torch.autograd.grad(loss, list(net.parameters()))
    assert find_rule(guard, language_batch()).model_arguments
    report = guard.step(language_batch())
    assert report.micro_batches == 4
    assert float(report.loss) == pytest.approx(float(loss.detach()), rel=1e-12)
    for (name, param), grad in zip(net.named_parameters(), grads, strict=True):
        torch.testing.assert_close(before[name] - param.detach(), grad, rtol=1e-12, atol=1e-14)


def test_the_loss_of_models_that_do_not_take_it_is_weighted_by_labels() -> None:
    net = LanguageModel(counts_items=False)
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=1.0), micro_batch=2)
    guard.step(language_batch())
    assert guard._batches.splits._rules[None][0].count is not None


class Counter(nn.Module):
    """Has everything that a forward can change: a buffer, an attribute, random numbers of three libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.count = NoisyNet(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.net(x)


def test_the_check_leaves_no_traces() -> None:
    batch = Rig().batches(1)[0]
    net, seen = Counter(), [0]
    net.net.norm.eval()

    def forward(model: nn.Module, batch: Any) -> Tensor:
        seen[0] += len(batch[0])
        return F.mse_loss(model(batch[0]), batch[1])

    guard = guard_of(net, forward=forward, extra_state=(seen,))
    guard.step(batch, update=False)
    modes = [module.training for module in net.modules()]
    grads: list[Any] = [cloned(param.grad) for param in net.parameters()]
    before, count = cloned(guard.state_dict()), net.count
    find_rule(guard, batch)
    assert differences(guard.state_dict(), before) == []
    assert (net.count, seen) == (count, [8])
    assert [module.training for module in net.modules()] == modes
    assert differences([param.grad for param in net.parameters()], grads) == []


def test_a_run_is_bit_identical_with_and_without_the_check() -> None:
    states = []
    for forward in (None, lambda model, batch: F.mse_loss(model(batch[0]), batch[1])):
        rig = Rig()
        for batch in rig.batches(2):
            rig.guard.step(batch, forward=forward)
        states.append(rig.state())
    assert differences(*states) == []


def test_the_check_runs_without_gradients() -> None:
    modes: list[tuple[bool, bool]] = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        if in_split_check():
            modes.append((torch.is_grad_enabled(), model.training))
        return F.mse_loss(model(batch[0]), batch[1])

    guard_of(plain_net(), forward=forward).step(plain_batch())
    assert modes == [(False, False)] * 3
