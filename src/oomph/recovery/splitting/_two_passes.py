"""The exact gradient of a loss over the whole batch, one micro-batch at a time.

The micro-batches run without gradients; the loss and its gradient are computed once, on the outputs of all of them;
then each micro-batch runs again, and backward with its part of that gradient. The second run must repeat the first one,
so buffers, attributes and random states are restored in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...batch import move, write_versions
from ...errors import UsageError
from ...losses import OutputParts, outputs_with_grads
from ...patches import autocast
from ..snapshots import Snapshot
from ._loss import LossAccumulator
from ._metrics import Metrics

if TYPE_CHECKING:
    from ._micro_batches import MicroBatchRunner, Work


class TwoPasses:
    """Runs micro-batches twice.

    Args:
        runner: splits batches.
        forward_state: creates snapshots of what a forward changes.
    """

    def __init__(self, runner: MicroBatchRunner, forward_state: Callable[[], list[Snapshot]]) -> None:
        self._runner = runner
        self._before, self._after = forward_state(), forward_state()

    def run(self, batch: Any, work: Work, metrics: Metrics) -> LossAccumulator:
        """Run both passes of a batch.

        Raises:
            UsageError: the forward changed its batch in place.
        """
        batch = self._runner.mode.resized(batch)
        samples, versions = self._runner.count_samples(batch), write_versions(batch)
        # Moved once: copying them again for the second pass would take longer than running it.
        parts = [
            (move(part, self._runner.device), size)
            for part, size in self._runner.parts(batch, samples, work.micro_batches)
        ]
        to_start = [snapshot.capture() for snapshot in self._before]
        outputs = OutputParts()
        with torch.no_grad():
            for number, (part, size) in enumerate(self._runner.rewinding(parts), 1):
                with self._runner.range_of("micro-batch {}: forward without gradients", number):
                    outputs.add(self._outputs(part, work), size)
        _reject_changes(batch, versions)
        with self._runner.range_of("loss of the batch"):
            losses = self._backward_of_loss(batch, samples, outputs, work)
        # The second pass changes what the first one did, so the state after the loss is that after the step.
        to_end = [snapshot.capture() for snapshot in self._after]
        for restore in to_start:
            restore()
        pairs = zip(self._runner.rewinding(parts), outputs.take_grads(), strict=True)
        for number, ((part, _), grads) in enumerate(pairs, 1):
            with self._runner.range_of("micro-batch {}: forward and backward", number):
                self._backward_of_part(part, grads, work, metrics)
        for restore in to_end:
            restore()
        return losses

    def _outputs(self, part: Any, work: Work) -> Any:
        with autocast(self._runner.mode.precision, self._runner.device.type):
            return work.objective.outputs(part)

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
        metrics.add(outputs, part)
        tensors, output_grads = outputs_with_grads(outputs, grads)
        del outputs
        if tensors:
            torch.autograd.backward(tensors, output_grads)


def _reject_changes(batch: Any, versions: list[int]) -> None:
    if write_versions(batch) != versions:
        raise UsageError(
            "the forward changed its batch in place, so a micro-batch can't run twice",
            "create a new tensor in the forward: x = x / 255 instead of x /= 255",
        )
