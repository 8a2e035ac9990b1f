"""The exact gradient of a loss over the whole batch, one micro-batch at a time.

The micro-batches run without gradients; the loss and its gradient are computed once, on the outputs of all of them;
then each micro-batch runs again, and backward with its part of that gradient. The second run must repeat the first one,
so buffers, attributes and random states are restored in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...batch import move
from ...losses import OutputParts, outputs_with_grads
from ...patches import autocast
from .._snapshots import Snapshot, rng_states, set_rng_states
from ._loss import LossAccumulator
from ._metrics import Metrics

if TYPE_CHECKING:
    from ._micro_batches import MicroBatchRunner, Work


class TwoPasses:
    """Runs micro-batches twice.

    Args:
        runner: splits batches.
        forward_state: snapshots of what a forward changes.
    """

    def __init__(self, runner: MicroBatchRunner, forward_state: Sequence[Snapshot]) -> None:
        self._runner, self._forward_state = runner, forward_state
        self._cuda = runner.device if runner.device.type == "cuda" else None

    def run(self, batch: Any, work: Work, metrics: Metrics) -> LossAccumulator:
        """Run both passes of a batch."""
        batch = self._runner.mode.resized(batch)
        samples = self._runner.count_samples(batch)
        parts = self._runner.parts(batch, samples, work.micro_batches)
        restores = [snapshot.capture() for snapshot in self._forward_state]
        outputs = OutputParts()
        with torch.no_grad():
            for part, size in self._runner.rewinding(parts):
                outputs.add(self._outputs(part, work), size)
        losses = self._backward_of_loss(batch, samples, outputs, work)
        states = rng_states(self._cuda)
        for restore in restores:
            restore()
        for (part, _), grads in zip(self._runner.rewinding(parts), outputs.take_grads(), strict=True):
            self._backward_of_part(part, grads, work, metrics)
        set_rng_states(states, self._cuda)  # as if the loss had run last
        return losses

    def _outputs(self, part: Any, work: Work) -> Any:
        with autocast(self._runner.mode.precision, self._runner.device.type):
            return work.objective.outputs(move(part, self._runner.device))

    def _backward_of_loss(self, batch: Any, samples: int, outputs: OutputParts, work: Work) -> LossAccumulator:
        """Compute the loss of the whole batch, and the gradients of it for the outputs and its own parameters."""
        losses, device = LossAccumulator(samples), self._runner.device
        targets = move(work.objective.targets(batch), device)
        with autocast(self._runner.mode.precision, device.type):
            value = work.objective.loss_of(outputs.joined(), targets)
        work.backward(losses.add(value, samples))
        return losses

    def _backward_of_part(self, part: Any, grads: list[Tensor | None], work: Work, metrics: Metrics) -> None:
        outputs = self._outputs(part, work)
        if metrics.is_wanted:
            metrics.add(outputs, move(part, self._runner.device))
        tensors, output_grads = outputs_with_grads(outputs, grads)
        del outputs
        if tensors:
            torch.autograd.backward(tensors, output_grads)
