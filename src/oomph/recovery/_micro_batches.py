"""Forward, loss and backward of a batch, one micro-batch after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..batch import Splitter, count_samples, micro_batch_sizes, move, split_samples
from ..errors import UsageError
from ..job import model_arguments
from ..patches import autocast
from ._loss import LossAccumulator, read_normalizer

Forward = Callable[..., Any]


class ForwardMode:
    """The precision and image size that forwards run with; fallbacks change them.

    Args:
        precision: "amp-bf16", "amp-fp16", or None for no autocast.
        resize: returns a batch with smaller images.
    """

    def __init__(self, precision: str | None = None, resize: Callable[[Any], Any] | None = None) -> None:
        self.precision, self._configured_precision, self._resize = precision, precision, resize
        self.resizes = 0

    def lower_precision(self) -> bool:
        """Run in bfloat16 autocast; return False if autocast is in use already."""
        if self.precision is not None:
            return False
        self.precision = "amp-bf16"
        return True

    def reset_precision(self) -> None:
        """Return to the configured precision."""
        self.precision = self._configured_precision

    def resize_once_more(self) -> bool:
        """Downscale the images once more."""
        self.resizes += 1
        return True

    def resize_once_less(self) -> None:
        """Downscale the images once less."""
        self.resizes -= 1

    def resized(self, batch: Any) -> Any:
        """Return the batch with its images downscaled as often as requested."""
        for _ in range(self.resizes):
            assert self._resize is not None  # noqa: S101  the fallback needs it
            batch = self._resize(batch)
        return batch


class MicroBatchRunner:
    """Runs batches as micro-batches.

    Args:
        model: the module that is called.
        loss: `loss(outputs, targets)`, for batches that are a pair of inputs and targets.
        splitter: splits batches that can't be split by rows.
        device: where micro-batches are moved.
        mode: precision and image size.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Forward | None,
        splitter: Splitter | None,
        device: torch.device,
        mode: ForwardMode,
    ) -> None:
        self.model, self.device, self.mode = model, device, mode
        self._loss, self._splitter = loss, splitter
        self.check_loss_once: Callable[[Any, Any], object] | None = None  # called in the first step that is split

    def count_samples(self, batch: Any) -> int:
        """Count the samples of a batch."""
        return count_samples(batch, ragged=self._splitter is not None)

    def split(self, batch: Any, micro_batches: int) -> Sequence[Any]:
        """Split a batch into micro-batches.

        Raises:
            UsageError: the user's split function returned another number of them.
        """
        if micro_batches == 1:
            return [batch]
        if self._splitter is None:
            return split_samples(batch, self.count_samples(batch), micro_batches)
        parts = self._splitter(batch, micro_batches)
        if len(parts) != micro_batches:
            raise UsageError(
                f"split returned {len(parts)} micro-batches instead of {micro_batches}", "return as many as requested"
            )
        return parts

    def run(
        self, batch: Any, micro_batches: int, forward: Forward | None, backward: Callable[[Tensor], object]
    ) -> LossAccumulator:
        """Run forward, loss and backward of every micro-batch.

        Args:
            batch: the whole batch.
            micro_batches: number of micro-batches.
            forward: called instead of the model and the loss.
            backward: called with each weighted loss.
        """
        function = forward or self._loss
        if function is None:
            raise UsageError("the guard has neither a loss nor a forward", "give it one of the two")
        batch = self.mode.resized(batch)  # before the normalizer, which may depend on the size
        samples = self.count_samples(batch)
        normalizer = read_normalizer(function, batch, self.device)
        by_samples = getattr(function, "weight_by_samples", False)
        losses = LossAccumulator(samples, normalizer, weight_by_samples=by_samples)
        can_check = micro_batches > 1 and samples >= 2 * micro_batches and not normalizer
        for part, size in self._parts(batch, samples, micro_batches):
            value = self._forward(part, forward, normalizer, can_check=can_check)
            backward(losses.add(value, size))
            del value, part  # so that nothing of this micro-batch is alive when the next one begins
        return losses

    def _parts(self, batch: Any, samples: int, micro_batches: int) -> Iterable[tuple[Any, int]]:
        if micro_batches == 1:
            return [(batch, samples)]
        parts = self.split(batch, micro_batches)
        if self._splitter is None:
            return zip(parts, micro_batch_sizes(samples, micro_batches), strict=True)
        return [(part, self.count_samples(part)) for part in parts]

    def _forward(self, part: Any, forward: Forward | None, normalizer: tuple[Any, ...], *, can_check: bool) -> Any:
        part = move(part, self.device)
        with autocast(self.mode.precision, self.device.type):
            if forward is not None:
                return forward(self.model, part, *normalizer)
            assert self._loss is not None  # noqa: S101  `run` checked it
            inputs, targets = _pair(part)
            args, kwargs = model_arguments(inputs)
            outputs = self.model(*args, **kwargs)
            if can_check and self.check_loss_once is not None:
                check, self.check_loss_once = self.check_loss_once, None
                check(outputs, targets)
            return self._loss(outputs, targets, *normalizer)


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, (tuple, list)) and len(batch) == 2:  # noqa: PLR2004  inputs and targets
        return batch[0], batch[1]
    raise UsageError(
        f"the batch is a {type(batch).__name__}, not a pair of inputs and targets",
        "give the guard forward=, a function of (model, batch) that returns the loss",
    )
