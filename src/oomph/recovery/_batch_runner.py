"""Runs a batch in as many micro-batches as requested, by the rule that makes its loss exact."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ._checks import BatchNormCheck, RoundingCheck, WarnOnce
from ._step_state import StepState
from ._transaction import Transaction
from .snapshots import SideEffects, Snapshot, SpectralNormSnapshot, SplitEffects
from .splitting import (
    LossAccumulator,
    Metrics,
    MicroBatchRunner,
    Objective,
    SplitCheck,
    SplitPolicy,
    TwoPasses,
    Work,
)


class BatchRunner:
    """Finds the rule by which a batch is split, runs the batch by it, and says once what is not exact.

    Args:
        objective: computes the loss.
        runner: runs micro-batches.
        forward_state: creates snapshots of what a forward changes.
        warnings: receives what is not exact.
        max_over_ranks: returns the largest of each number over all ranks.
        allows_inexact: split even where the gradient differs from that of the whole batch.

    Attributes:
        is_checking: True while forwards run only to find out how a batch may be split.
    """

    def __init__(
        self,
        objective: Objective,
        runner: MicroBatchRunner,
        *,
        forward_state: Callable[[], list[Snapshot]],
        warnings: WarnOnce,
        max_over_ranks: Callable[[list[int]], list[int]],
        allows_inexact: bool,
    ) -> None:
        self.objective, self._runner, self.is_checking = objective, runner, False
        model, loss_modules = objective.model, objective.loss_modules
        vectors = SpectralNormSnapshot(model, *loss_modules).vectors
        self._batch_norm, self._rounding = BatchNormCheck(model, warnings), RoundingCheck(model, warnings)
        self._two_passes = TwoPasses(runner, forward_state)
        check = SplitCheck(runner, Transaction.of(forward_state()), [model, *loss_modules])
        self.splits = SplitPolicy(check, warnings.warn, max_over_ranks, allows_inexact=allows_inexact)
        self.effects = SplitEffects(lambda: SideEffects(model, loss_modules, runner.device, vectors), warnings.warn)

    def find_rule(self, state: StepState, forward: Callable[..., Any] | None, step: int) -> None:
        """Set the objective of a step and the rule by which its batch is split."""
        state.objective = self.objective if forward is None else self.objective.with_forward(forward)
        self.is_checking = True
        try:
            state.rule = self.splits.rule_for(state.objective, state.batch, step)
        finally:
            self.is_checking = False

    def min_samples(self, state: StepState) -> int:
        """Return the smallest micro-batch; beyond any batch if the batch must not be split."""
        return self._batch_norm.min_samples() if self.splits.may_split(state.rule) else sys.maxsize

    def announce(self, state: StepState) -> None:
        """Say, in the first split step, how the batch is split and what is computed per micro-batch."""
        if state.is_split:
            self.splits.announce(state.rule)
            self._batch_norm.warn_if_split()
            self._rounding.warn_if_split()

    def run(self, state: StepState, backward: Callable[[Tensor], object], metrics: Metrics) -> LossAccumulator:
        """Run forward, loss and backward of all micro-batches."""
        work = Work(state.objective, state.rule, state.micro_batches, backward, is_part=state.is_part)
        runner = self._two_passes if state.is_split and state.rule.passes > 1 else self._runner
        with self.effects.observe(is_split=state.is_split):
            return runner.run(state.batch, work, metrics)
