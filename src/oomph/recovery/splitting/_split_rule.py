"""How a batch is split so that the gradient stays that of the whole batch, and the check that it does.

In the first step, before training, the loss of a part of the batch is compared with the combination of its halves, in
eval mode and without gradients. So it is known at the start, not when memory runs out, whether splitting is exact.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ...batch import join_outputs, map_tensors, move, tensors_in
from ...errors import UsageError, describe
from ...losses import LossSum, TorchLoss
from ...patches import autocast
from .._caught_oom import free_memory, is_oom
from .._transaction import Transaction
from ..snapshots import rng_states
from ._loss_trials import LossTrials, RefutedCounts
from ._objective import Objective, is_loss, label_counts

if TYPE_CHECKING:
    from ._micro_batches import MicroBatchRunner

_DECLARE = 'if it is, say reduction="mean" (or "sum")'
_RETURN_OUTPUTS = (
    "in a loop with oomph.guard, let forward= return the outputs and give loss= without reduction=: then any loss is "
    "exact"
)


@dataclass(frozen=True)
class SplitRule:
    """How micro-batches combine to the gradient of the whole batch.

    Attributes:
        way: the way in words.
        passes: 2 if each micro-batch runs twice: once for the outputs that the loss of the whole batch needs, once for
            its part of the gradient.
        problem: why the gradient of a split batch would differ; empty if it is exact.
        fix: what the user can do about it.
        count: returns what the loss of a micro-batch is divided by; None for its samples.
        adds_up: the losses of micro-batches are added.
        model_arguments: arguments of the model that are computed from the whole batch, by name.
        is_final: False if the check could not decide and the next step should try again.
        needs_repeats: True if later batches may show a difference that the first one can't.
    """

    way: str
    passes: int = 1
    problem: str = ""
    fix: str = ""
    count: Callable[[Any], Any] | None = None
    adds_up: bool = False
    model_arguments: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    is_final: bool = True
    needs_repeats: bool = False


class SplitCheck:
    """Finds the rule for an objective.

    Args:
        runner: splits batches.
        transaction: restores what the check changes: buffers, attributes, random states, gradients.
        modules: the model, and the loss if it is a module.
    """

    def __init__(self, runner: MicroBatchRunner, transaction: Transaction, modules: list[nn.Module]) -> None:
        self._runner, self._transaction, self._modules = runner, transaction, modules
        self._refuted: dict[object, RefutedCounts] = {}

    def find_rule(self, objective: Objective, batch: Any) -> SplitRule:
        """Return the rule for an objective, from the first samples of a batch that fit into memory."""
        if objective.normalizer is not None:
            return SplitRule("the loss is divided by the normalizer of the whole batch")
        loss = objective.torch_loss
        if loss is not None and not loss.has_elementwise_weights and not objective.has_forward:
            return _rule_of_torch(loss)
        parts, rules, samples = 1, list[SplitRule](), self._runner.count_samples(batch)
        while not rules:
            if samples // parts < 2:  # noqa: PLR2004  halves
                problem = "the batch has a single sample" if parts == 1 else "the check of the loss ran out of memory"
                return SplitRule("unknown", problem=problem, fix=_DECLARE, is_final=False)
            joined = self._runner.split(batch, parts)[0]
            oom = self._transaction.try_run(
                functools.partial(lambda part: rules.append(self._compare(objective, part)), joined)
            )
            self._transaction.rollback()
            if oom is not None:
                free_memory()
                parts *= 2
        return rules[0]

    def _compare(self, objective: Objective, joined: Any) -> SplitRule:
        """Compare in eval mode, or, for models that have no loss in eval mode, with only noisy layers in it."""
        errors: list[str] = []
        for noisy_only in (False, True):
            with _eval_mode(self._modules, noisy_only=noisy_only):
                try:
                    return self._compare_in_mode(objective, joined)
                except Exception as error:
                    if is_oom(error):
                        raise
                    errors.append(describe(error, 200))
        return _unchecked(objective, errors[-1])

    @torch.no_grad()
    def _compare_in_mode(self, objective: Objective, joined: Any) -> SplitRule:
        comparison = _Comparison(
            self._runner, objective, joined, self._refuted.setdefault(objective.key, RefutedCounts())
        )
        if objective.returns_own_loss:
            return comparison.of_own_loss()
        whole = comparison.whole
        if not objective.has_outputs(whole.outputs):
            return comparison.of_plain_loss("the loss that forward returns")
        value = whole.value
        if isinstance(value, LossSum) or objective.torch_loss is not None:
            return comparison.of_sums()
        if objective.declared_reduction is not None:
            return comparison.of_plain_loss("the loss")
        return comparison.of_outputs()


@dataclass(frozen=True)
class _Evaluated:
    """The outputs and loss of a part of a batch."""

    part: Any
    outputs: Any
    value: Any
    samples: int
    draws_random_numbers: bool


def _rule_of_torch(loss: TorchLoss) -> SplitRule:
    if loss.reduction == "sum":
        return SplitRule(f"the sums of {loss.name} are added")
    return SplitRule(f"the sums of {loss.name} are divided by the count of the whole batch")


def _unchecked(objective: Objective, error: str) -> SplitRule:
    """Return the rule for a forward that fails without gradients: what is declared, or known of torch's losses."""
    if objective.torch_loss is not None and not objective.torch_loss.has_elementwise_weights:
        return _rule_of_torch(objective.torch_loss)
    if objective.declared_reduction is not None:
        return SplitRule(f"the loss is a {objective.declared_reduction} over samples by declaration")
    problem = f"it can't be checked that the loss is a mean over samples ({error})"
    return SplitRule("unknown", problem=problem, fix=_DECLARE)


class _Comparison:
    """The loss of a part of a batch beside those of its halves."""

    def __init__(self, runner: MicroBatchRunner, objective: Objective, joined: Any, refuted: RefutedCounts) -> None:
        self._runner, self._objective, self._joined, self._refuted = runner, objective, joined, refuted
        self.whole = self._evaluate(joined)

    def _evaluate(self, part: Any, **keywords: Any) -> _Evaluated:
        objective, device = self._objective, self._runner.device
        samples = self._runner.count_samples(part)
        part = map_tensors(move(part, device), torch.clone)  # the forward may change its batch in place
        cuda = device if device.type == "cuda" else None
        before = rng_states(cuda)
        with autocast(self._runner.mode.precision, device.type):
            outputs = objective.outputs(part, **keywords)
            value = objective.loss(outputs, part)
        if not is_loss(value):
            raise UsageError("the loss is not a scalar", "return a scalar tensor or an oomph.LossSum")
        return _Evaluated(part, outputs, value, samples, draws_random_numbers=not _equal(before, rng_states(cuda)))

    def _outputs(self, part: Any) -> Any:
        with autocast(self._runner.mode.precision, self._runner.device.type):
            return self._objective.outputs(move(part, self._runner.device))

    def _split(self) -> Sequence[Any]:
        return self._runner.split(self._joined, 2)

    def _tolerance(self) -> float:
        """Return the relative difference that rounding can explain."""
        value = self.whole.value.total if isinstance(self.whole.value, LossSum) else self.whole.value
        # A loss in single precision may come from a model with weights in half precision.
        tensors = [*tensors_in([self.whole.outputs]), *self._runner.model.parameters()]
        if self._runner.mode.rounds or {tensor.dtype for tensor in tensors} & {torch.float16, torch.bfloat16}:
            return 1e-2
        if value.dtype == torch.float64:
            return 1e-9
        return 1e-3 if value.is_cuda else 1e-4  # TF32 convolutions

    def of_sums(self) -> SplitRule:
        """Return the rule for torch's own losses and for a LossSum, which are exact by their counts."""
        loss = self._objective.torch_loss
        if loss is None:
            return SplitRule("the sums and counts of the micro-batches are added")
        if not loss.can_split(self.whole.outputs, self._objective.targets(self.whole.part)):
            return self.of_outputs()
        return _rule_of_torch(loss)

    def of_outputs(self) -> SplitRule:
        """Return the rule of two passes if the outputs of halves are those of the whole."""
        way = "each micro-batch runs twice, and the loss is computed once on the outputs of the whole batch"
        halves = [(self._outputs(part), self._runner.count_samples(part)) for part in self._split()]
        joined = join_outputs([outputs for outputs, _ in halves], [samples for _, samples in halves])
        pairs = list(zip(tensors_in(joined), tensors_in(self.whole.outputs), strict=True))
        if any(ours.shape != whole.shape for ours, whole in pairs):
            return SplitRule(way, 2, "the model's outputs don't lie along the batch", "put the samples first in them")
        if self.whole.draws_random_numbers:
            return SplitRule(way, 2)
        tolerance = min(100 * self._tolerance(), 0.1)
        for ours, whole in pairs:
            if whole.is_floating_point() and not torch.allclose(
                ours, whole, rtol=tolerance, atol=tolerance * float(whole.abs().mean() if whole.numel() else 0)
            ):
                return SplitRule(
                    way,
                    2,
                    "the model's outputs for a sample depend on the other samples of its batch",
                    "use layers that treat samples separately",
                )
        return SplitRule(way, 2)

    def of_plain_loss(self, subject: str) -> SplitRule:
        """Return the rule for a loss that is a mean or a sum over samples, or a mean over labels that are not -100."""
        declared = self._objective.declared_reduction
        reduction = declared or "mean"
        way = f"{subject} is a {reduction} over samples" + ("" if declared else ", as the first step showed")
        if isinstance(self.whole.value, LossSum):
            return self.of_sums()
        if self.whole.draws_random_numbers:
            if declared is not None:
                return SplitRule(f"{way} by declaration")
            problem = f"the forward draws random numbers, so that it can't be checked that {subject} is a mean"
            return SplitRule(way, problem=problem, fix=_DECLARE)
        if not math.isfinite(float(self.whole.value)):
            return SplitRule(way, problem=f"{subject} is {float(self.whole.value)}", is_final=False)
        trials = LossTrials(
            self._runner, self._joined, self.whole.value, lambda part: self._evaluate(part).value, self._tolerance()
        )
        if not trials.pieces:
            return SplitRule(way, problem=f"{subject} is not finite for parts of the batch", is_final=False)
        if reduction == "mean":
            counts = [count for count in label_counts(self._joined) if self._refuted.allows(count)]
            count, refuted = trials.closest_count([*counts, self._runner.count_samples])
            self._refuted.add(refuted)
            if count is not None and count is not self._runner.count_samples:
                return SplitRule(
                    f"{subject} is a mean over labels, as the first step showed", count=count, needs_repeats=True
                )
            is_right = count is not None
        else:
            is_right = trials.is_sum()
        if is_right:
            return SplitRule(way, needs_repeats=True)
        problem = f"{subject} is {trials.describe(reduction)}"
        is_sum = reduction == "mean" and trials.is_sum()
        if is_sum and self._objective.may_add_up:
            way = f"{subject} is a sum over samples, as the first step showed"
            return SplitRule(way, adds_up=True, needs_repeats=True)
        fix = 'it is a sum: say reduction="sum"' if is_sum else _RETURN_OUTPUTS
        return SplitRule(way, problem=f"{problem}: it is not a {reduction} over samples", fix=fix)

    def of_own_loss(self) -> SplitRule:
        """Return the rule for a model that returns its loss: divided by the labels of the whole batch if it can be."""
        for count in label_counts(self._joined):
            with contextlib.suppress(TypeError):  # it has no such argument
                total = float(self._evaluate(self._joined, num_items_in_batch=1).value)
                number = float(count(self._joined))
                expected = float(self.whole.value)
                if number > 1 and abs(total / number - expected) <= self._tolerance() * max(abs(expected), 1e-6):
                    return SplitRule(
                        "the model divides its loss by the labels of the whole batch",
                        model_arguments={"num_items_in_batch": count},
                    )
        return self.of_plain_loss("the loss that the model returns")


def _equal(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Compare random states."""
    for name, state in before.items():
        other = after.get(name)
        if isinstance(state, Tensor):
            if not torch.equal(state, other):  # type: ignore[arg-type]
                return False
        elif repr(state) != repr(other):
            return False
    return True


@contextlib.contextmanager
def _eval_mode(modules: list[nn.Module], *, noisy_only: bool) -> Iterator[None]:
    """Put modules into eval mode, or only their BatchNorm and dropout layers; then back into their own mode."""
    parts = [part for module in modules for part in module.modules() if part.training]
    if noisy_only:
        noisy = (_BatchNorm, _DropoutNd)
        parts = [part for part in parts if isinstance(part, noisy) or type(part).__name__ == "DropPath"]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part in parts:
            part.training = True
