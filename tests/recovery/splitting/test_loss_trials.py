"""What the values of a loss on a few samples show: a mean over samples or labels, a sum, or neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.recovery.splitting import SplitRule

from ..nets import guard_of
from .test_split_rule import find_rule

F = nn.functional
WEIGHTS = torch.tensor([1.0, 2.0, 3.0])

Loss = Callable[[Tensor, Tensor], Tensor]


def weighted(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels, weight=WEIGHTS)


def rule_of(loss: Loss, *, precision: str | None = None, is_zero: bool = False, samples: int = 32) -> SplitRule:
    """Return the rule of a classifier's loss in the first step, for labels of which one class is rare."""
    torch.manual_seed(0)
    head = nn.Linear(16, 3)
    if is_zero:
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), head)
    batch = torch.randn(samples, 8), torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), samples, replacement=True)
    guard = guard_of(net, precision=precision, forward=lambda model, batch: loss(model(batch[0]), batch[1]))
    return find_rule(guard, batch)


HEADS = pytest.mark.parametrize("is_zero", [False, True], ids=["", "zero head"])
PRECISIONS = pytest.mark.parametrize("precision", [None, "amp-bf16"])


@HEADS
@PRECISIONS
@pytest.mark.parametrize("samples", [2, 7, 32, 300])
def test_a_mean_over_samples_is_recognized(precision: str | None, *, is_zero: bool, samples: int) -> None:
    rule = rule_of(F.cross_entropy, precision=precision, is_zero=is_zero, samples=samples)
    assert rule.problem == ""
    assert not rule.adds_up


@HEADS
@PRECISIONS
@pytest.mark.parametrize("samples", [7, 32, 300])
def test_weights_of_classes_are_noticed_although_losses_are_alike(
    precision: str | None, *, is_zero: bool, samples: int
) -> None:
    rule = rule_of(weighted, precision=precision, is_zero=is_zero, samples=samples)
    assert "it is not a mean over samples" in rule.problem
    if is_zero:
        assert "its gradient is not that of its parts" in rule.problem


@PRECISIONS
def test_a_small_term_that_does_not_add_up_is_noticed(precision: str | None) -> None:
    def balanced(logits: Tensor, labels: Tensor) -> Tensor:
        shares = logits.float().softmax(-1).mean(0)
        return F.cross_entropy(logits.float(), labels, reduction="sum") + 0.01 * len(shares) * shares.square().sum()

    assert rule_of(balanced, precision=precision).problem


def test_a_zero_loss_of_some_samples_is_no_problem() -> None:
    def hinge(logits: Tensor, labels: Tensor) -> Tensor:
        return (1 - logits.gather(1, labels[:, None])).relu().mean()

    assert rule_of(hinge).problem == ""


@PRECISIONS
def test_losses_of_both_signs_may_cancel_out(precision: str | None) -> None:
    def advantage(logits: Tensor, labels: Tensor) -> Tensor:
        signs = 1 - 2 * (torch.arange(len(labels)) % 2)
        return (logits.float().logsumexp(1) * signs).mean()

    assert rule_of(advantage, precision=precision, samples=64).problem == ""


def language_guard(net: nn.Module) -> Any:
    def forward(model: nn.Module, batch: Any) -> Tensor:
        tokens, labels = batch
        return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    return guard_of(net, forward=forward)


def sentences(lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Return tokens and labels; those behind the end of a sentence are ignored."""
    tokens = torch.randint(0, 11, (len(lengths), 9))
    labels = tokens.masked_fill(torch.arange(9) >= torch.tensor(lengths)[:, None], -100)
    return tokens, labels


def test_a_count_that_was_refuted_stays_refuted() -> None:
    torch.manual_seed(0)
    guard = language_guard(nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 11)))
    first, other = sentences([9, 2, 5, 3, 8, 4]), sentences([6, 6, 6, 6, 6, 6])
    rules = [find_rule(guard, batch) for batch in (first, other)]
    for rule in rules:
        assert rule.problem == ""
        assert rule.count is not None
        assert int(rule.count(first)) == 9 + 2 + 5 + 3 + 8 + 4 - 6, "the first label of a sentence is not predicted"


def test_a_check_of_gradients_leaves_no_traces() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3))
    nn.init.zeros_(net[1].weight)  # type: ignore[arg-type]
    nn.init.zeros_(net[1].bias)  # type: ignore[arg-type]
    net[0].bias.requires_grad_(False)
    guard = guard_of(net, forward=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]))
    find_rule(guard, (torch.randn(8, 8), torch.randint(0, 3, (8,))))
    assert [param.requires_grad for param in net.parameters()] == [True, False, True, True]
    assert all(param.grad is None for param in net.parameters())
