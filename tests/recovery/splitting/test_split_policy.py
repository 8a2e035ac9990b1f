"""Steps that can't be split exactly are not split unless that is allowed; the check repeats, and is announced once."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import RetriesExhausted, UsageError
from oomph.recovery.splitting import Objective, SplitPolicy, SplitRule

from ..faults import FaultIn, in_split_check
from ..nets import cloned, differences, plain_batch, plain_guard, plain_net

F = nn.functional


class FixedCheck:
    """Returns given rules, one after the other, and the last one again and again."""

    def __init__(self, *rules: SplitRule) -> None:
        self.rules, self.calls = list(rules), 0
        self.messages: list[str] = []

    def find_rule(self, objective: Objective, batch: Any) -> SplitRule:
        del objective, batch
        self.calls += 1
        return self.rules[min(self.calls, len(self.rules)) - 1]


def policy_of(
    *rules: SplitRule, other_rank: tuple[int, int, int] = (0, 0, 0), allows_inexact: bool = False
) -> tuple[SplitPolicy, FixedCheck]:
    """Return a policy beside another rank, whose rule has a problem, is undecided or needs repeats."""
    check: Any = FixedCheck(*rules)
    policy = SplitPolicy(
        check,
        check.messages.append,
        lambda flags: [max(pair) for pair in zip(flags, other_rank, strict=True)],
        allows_inexact=allows_inexact,
    )
    return policy, check


OBJECTIVE = Objective(plain_net(), None)
EXACT, REPEATED = SplitRule("exactly"), SplitRule("exactly", needs_repeats=True)
WRONG = SplitRule("by means", problem="the loss is a product", fix="return outputs")


@pytest.mark.parametrize(
    ("rule", "steps"), [(EXACT, [0]), (REPEATED, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 2023])]
)
def test_a_rule_is_found_once_or_ever_more_rarely(rule: SplitRule, steps: list[int]) -> None:
    policy, check = policy_of(rule)
    checked = []
    for step in range(2500):
        calls = check.calls
        policy.rule_for(OBJECTIVE, None, step)
        checked += [step] if check.calls > calls else []
    assert checked == steps


def test_a_rank_checks_again_when_another_one_must() -> None:
    policy, check = policy_of(EXACT, other_rank=(1, 1, 0))
    assert [policy.rule_for(OBJECTIVE, None, step).is_final for step in range(2)] == [False, False]
    assert check.calls == 2


def test_a_rule_that_could_not_be_decided_is_checked_in_the_next_step() -> None:
    policy, check = policy_of(SplitRule("unknown", problem="a single sample", is_final=False), EXACT)
    assert [policy.rule_for(OBJECTIVE, None, step).problem for step in range(3)] == ["a single sample", "", ""]
    assert check.calls == 2
    assert check.messages == []


def test_each_forward_has_its_rule() -> None:
    policy, check = policy_of(EXACT)
    for _ in range(2):
        policy.rule_for(OBJECTIVE, None, 0)
        policy.rule_for(OBJECTIVE.with_forward(lambda model, batch: model(batch)), None, 0)
    assert check.calls == 2


def test_a_rank_that_cannot_split_keeps_the_others_from_splitting() -> None:
    policy, _ = policy_of(EXACT, other_rank=(1, 0, 0))
    rule = policy.rule_for(OBJECTIVE, None, 0)
    assert rule.problem == "another rank found that its loss can't be split exactly"
    assert not policy.may_split(rule)


def test_a_problem_is_a_warning_once() -> None:
    policy, check = policy_of(WRONG)
    for step in range(3):
        policy.rule_for(OBJECTIVE, None, step)
    (message,) = check.messages
    assert message.startswith("The loss is a product. Steps are not split")
    assert message.endswith("To split exactly: return outputs.")


def test_what_is_requested_must_be_exact_unless_allowed() -> None:
    strict, _ = policy_of(WRONG)
    with pytest.raises(UsageError, match=r'micro_batch=4 would change the gradient: the loss is a product.*"warn"'):
        strict.require_exact(WRONG, 4)
    strict.require_exact(EXACT, 4)
    lenient, _ = policy_of(WRONG, allows_inexact=True)
    lenient.require_exact(WRONG, 4)
    assert [policy.may_split(rule) for policy in (strict, lenient) for rule in (EXACT, WRONG)] == [
        True,
        False,
        True,
        True,
    ]


def test_the_way_is_logged_once_and_nothing_inexact_is_called_exact(caplog: pytest.LogCaptureFixture) -> None:
    policy, _ = policy_of(EXACT)
    with caplog.at_level(logging.INFO, logger="oomph"):
        for rule in (EXACT, EXACT, WRONG):
            policy.announce(rule)
    assert [record.getMessage() for record in caplog.records] == ["Splitting is exact: exactly."]


def pairwise(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]) @ batch[1].T, torch.arange(len(batch[0])))


def test_a_step_that_cannot_be_split_exactly_ends_the_run_unchanged() -> None:
    guard = plain_guard(None, forward=pairwise)
    guard.step(plain_batch())
    before = cloned(dict(guard.model.state_dict()))
    with pytest.raises(RetriesExhausted, match=r"the batch was not split: .*it is not a mean"), FaultIn("addmm"):
        guard.step(plain_batch())
    assert differences(dict(guard.model.state_dict()), before) == []
    assert len(guard.notices) == 1


def test_an_inexact_split_is_allowed_and_announced() -> None:
    guard = plain_guard(None, forward=pairwise, inexact="warn", micro_batch=4)
    assert guard.step(plain_batch()).micro_batches == 2
    (notice,) = guard.notices
    assert "A split step is not exact, as you allowed" in notice


@pytest.mark.parametrize(("option", "value"), [("inexact", "yes"), ("reduction", "max"), ("inexact", None)])
def test_unknown_choices_are_rejected(option: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{option} is"):
        plain_guard(**{option: value})


def forward_with(reduction: str) -> Any:
    def forward(model: nn.Module, batch: Any) -> Tensor:
        return F.mse_loss(model(batch[0]), batch[1], reduction=reduction)

    return forward


def test_forwards_that_captured_different_values_have_different_rules() -> None:
    guard = plain_guard(None, forward=forward_with("mean"))
    guard.step(plain_batch())
    guard.retry_policy.micro_batch = 4
    assert guard.step(plain_batch(), forward=forward_with("sum")).micro_batches == 1


def test_a_partial_that_each_step_creates_anew_is_the_same_forward() -> None:
    def forward(model: nn.Module, batch: Any, epoch: int) -> Tensor:
        del epoch
        calls.append(in_split_check())
        return F.mse_loss(model(batch[0]), batch[1])

    calls: list[bool] = []
    guard = plain_guard(None)
    for epoch in range(4):
        guard.step(plain_batch(), forward=functools.partial(forward, epoch=epoch))
    assert calls.count(True) == 3 * 3  # in steps 0, 1 and 3
