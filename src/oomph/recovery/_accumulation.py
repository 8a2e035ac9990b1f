"""The gradients of several batches that count as one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch.optim import Optimizer

from ..losses import Number
from ._checks import WarnOnce, warn_accumulation
from ._step_state import StepMode, StepState
from .snapshots import GradStash, stray_gradients
from .splitting import LossAccumulator, accumulation_weights, merge_grads


class Accumulation:
    """Merges the gradients of a batch with those of the batches before it.

    Args:
        model: the model to train.
        optimizers: their parameters have gradients, too.
        warnings: receives what is not exact.

    Attributes:
        stash: the gradients of earlier batches during a step.
        pending: the weight of the batches since the last update; None if there are none.
    """

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer], warnings: WarnOnce) -> None:
        self._model, self._warnings = model, warnings
        self.stash = GradStash(model, optimizers)
        self.pending: Number | None = None

    def begin(self, mode: StepMode) -> bool:
        """Take the earlier gradients off the parameters; return True if this batch counts as one with others."""
        if not self.stash.stashed:  # the user has set them to None
            self.pending = None
        elif self.pending is None and not mode.adds_grads:
            stray = stray_gradients(self._model.named_parameters())
            if stray is not None:
                self._warnings.warn(stray.message)
        self.stash.take_off()
        return not mode.updates or self.pending is not None

    def merge(self, losses: LossAccumulator, mode: StepMode) -> None:
        """Add the earlier gradients to those of the batch, weighted as one batch or as `backward()` does."""
        parameters, stashed = self.stash.parameters, self.stash.stashed
        losses.rescale_grads(parameters, mode.scale)
        if not stashed and self.pending is None:
            return
        adds = losses.adds_up or mode.adds_grads
        weights = None if adds else accumulation_weights(losses.weight, self.pending)
        for index, param in enumerate(parameters):
            param.grad = merge_grads(param.grad, stashed.get(index), weights)

    def count(self, state: StepState) -> None:
        """Add a batch to those since the last update; warn if they don't count as one exactly."""
        losses = state.losses
        assert losses is not None  # noqa: S101  it is set by a successful attempt
        if state.is_part and not state.mode.adds_grads:
            warn_accumulation(self._warnings, state.rule, has_known_divisor=losses.has_known_divisor)
            self.pending = losses.weight + (0.0 if self.pending is None else self.pending)

    def end(self, mode: StepMode) -> None:
        """Drop the earlier gradients, and all of them after an update; after an interrupt this may run twice."""
        self.stash.release()
        if mode.updates:
            self.stash.clear()
            self.pending = None
