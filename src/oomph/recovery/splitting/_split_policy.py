"""Decides whether a step may be split, checks it again now and then, and says so once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...errors import UsageError
from ._objective import Objective
from ._split_rule import SplitCheck, SplitRule

_log = logging.getLogger("oomph")
_MAX_STEPS_BETWEEN_CHECKS = 1000
_MAX_RULES = 32


class SplitPolicy:
    """The rule by which each objective is split.

    Args:
        check: finds the rules.
        warn: receives what is not exact.
        max_over_ranks: returns the largest of each number over all ranks.
        allows_inexact: split even where the gradient differs from that of the whole batch.
    """

    def __init__(
        self,
        check: SplitCheck,
        warn: Callable[[str], None],
        max_over_ranks: Callable[[list[int]], list[int]],
        *,
        allows_inexact: bool,
    ) -> None:
        self._check, self._warn, self._allows_inexact = check, warn, allows_inexact
        self._max_over_ranks = max_over_ranks
        self._rules: dict[object, tuple[SplitRule, int]] = {}  # with the step of the last check
        self._announced: set[str] = set()

    def rule_for(self, objective: Objective, batch: Any, step: int) -> SplitRule:
        """Return the rule of an objective; check it in the first step, then ever more rarely, at last every 1,000.

        A single batch may not show a difference: all its sequences may have the same length.

        Args:
            objective: computes the loss.
            batch: the batch of this step.
            step: the number of this step.
        """
        key = objective.key
        rule, checked_at = self._rules.get(key, (None, 0))
        is_due = rule is None or not rule.is_final
        if rule is not None and rule.needs_repeats:
            is_due |= step >= checked_at + min(checked_at + 1, _MAX_STEPS_BETWEEN_CHECKS)
        if rule is None or is_due:
            rule = self._agreed(self._check.find_rule(objective, batch))
            if len(self._rules) >= _MAX_RULES:  # of forwards that each step creates anew
                self._rules.pop(next(iter(self._rules)))
            self._rules[key] = (rule, step)
            if rule.problem and rule.is_final:
                self._warn(self._message(rule))
        return rule

    def _agreed(self, rule: SplitRule) -> SplitRule:
        """Return the rule with what other ranks found: all must check again in the same steps."""
        flags = [int(bool(rule.problem)), int(not rule.is_final), int(rule.needs_repeats)]
        has_problem, is_undecided, needs_repeats = self._max_over_ranks(flags)
        problem = rule.problem or ("another rank found that its loss can't be split exactly" if has_problem else "")
        return replace(rule, problem=problem, is_final=not is_undecided, needs_repeats=bool(needs_repeats))

    def may_split(self, rule: SplitRule) -> bool:
        """Return True if a step may be split."""
        return not rule.problem or self._allows_inexact

    def require_exact(self, rule: SplitRule, micro_batch: int) -> None:
        """Reject a requested micro-batch that would change the gradient.

        Raises:
            UsageError: the rule is not exact, and inexact splits are not allowed.
        """
        if rule.is_final and not self.may_split(rule):
            raise UsageError(
                f"micro_batch={micro_batch} would change the gradient: {rule.problem}",
                "; or ".join(filter(None, [rule.fix, 'allow it with inexact="warn"'])),
            )

    def announce(self, rule: SplitRule) -> None:
        """Log, in the first split step, how the batch is split."""
        if rule.way in self._announced or rule.problem:
            return
        self._announced.add(rule.way)
        _log.info("Splitting is exact: %s.", rule.way)

    def _message(self, rule: SplitRule) -> str:
        consequence = (
            "A split step is not exact, as you allowed"
            if self._allows_inexact
            else "Steps are not split; if memory runs out, blocks are checkpointed instead"
        )
        fix = f" To split exactly: {rule.fix}." if rule.fix else ""
        return f"{rule.problem[0].upper()}{rule.problem[1:]}. {consequence}.{fix}"
