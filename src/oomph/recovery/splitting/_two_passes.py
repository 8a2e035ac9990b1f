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

from ...batch import join_outputs, map_tensors, move, tensors_in
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
        with torch.no_grad():
            outputs = [map_tensors(self._outputs(part, work), _as_leaf) for part, _ in self._runner.rewinding(parts)]
        losses = self._backward_of_loss(batch, samples, [size for _, size in parts], outputs, work)
        states = rng_states(self._cuda)
        for restore in restores:
            restore()
        for (part, _), leaves in zip(self._runner.rewinding(parts), outputs, strict=True):
            self._backward_of_part(part, [leaf.grad for leaf in tensors_in([leaves])], work, metrics)
        set_rng_states(states, self._cuda)  # as if the loss had run last
        return losses

    def _outputs(self, part: Any, work: Work) -> Any:
        with autocast(self._runner.mode.precision, self._runner.device.type):
            return work.objective.outputs(move(part, self._runner.device))

    def _backward_of_loss(
        self, batch: Any, samples: int, sizes: list[int], outputs: list[Any], work: Work
    ) -> LossAccumulator:
        """Compute the loss of the whole batch, and the gradients of it for the outputs and its own parameters."""
        losses = LossAccumulator(samples)
        joined, device = join_outputs(outputs, sizes), self._runner.device
        with autocast(self._runner.mode.precision, device.type):
            value = work.objective.loss_of(joined, move(work.objective.targets(batch), device))
        work.backward(losses.add(value, samples))
        return losses

    def _backward_of_part(self, part: Any, grads: list[Tensor | None], work: Work, metrics: Metrics) -> None:
        outputs = self._outputs(part, work)
        pairs = [
            (tensor, grad)
            for tensor, grad in zip(tensors_in([outputs]), grads, strict=True)
            if grad is not None and tensor.requires_grad
        ]
        if metrics.is_wanted:
            metrics.add(outputs, move(part, self._runner.device))
        del outputs
        if pairs:
            torch.autograd.backward([tensor for tensor, _ in pairs], [grad for _, grad in pairs])


def _as_leaf(tensor: Tensor) -> Tensor:
    leaf = tensor.detach()
    return leaf.requires_grad_() if leaf.is_floating_point() or leaf.is_complex() else leaf
