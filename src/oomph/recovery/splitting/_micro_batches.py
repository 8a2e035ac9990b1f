"""Forward, loss and backward of a batch, one micro-batch after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...batch import BatchFormat, micro_batch_sizes, move
from ...errors import UsageError
from ...losses import LossSum
from ...patches import autocast
from ..profiling import Range
from ..snapshots import Snapshot
from ._loss import LossAccumulator, mean_as_sum
from ._metrics import Metrics
from ._objective import Objective
from ._split_rule import SplitRule


class ForwardMode:
    """The precision and image size that forwards run with; fallbacks change them.

    Args:
        precision: "amp-bf16", "amp-fp16", or None for no autocast.
        resize: returns a batch with smaller images.
        is_mixed: the model runs in an autocast of its own.
    """

    def __init__(
        self,
        precision: str | None = None,
        resize: Callable[[Any], Any] | None = None,
        *,
        is_mixed: bool = False,
    ) -> None:
        self.precision, self._configured_precision, self._resize = precision, precision, resize
        self._is_mixed = is_mixed
        self.resizes = 0

    @property
    def rounds(self) -> bool:
        """True if the forward computes in half precision."""
        return self._is_mixed or self.precision is not None

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


@dataclass(frozen=True)
class Work:
    """What a batch is run with.

    Attributes:
        objective: computes outputs and loss.
        rule: how the micro-batches combine to the gradient of the whole batch.
        micro_batches: number of micro-batches.
        backward: called with each weighted loss.
        is_part: True if this batch is accumulated with others, which count as one.
    """

    objective: Objective
    rule: SplitRule
    micro_batches: int
    backward: Callable[[Tensor], object]
    is_part: bool = False


class MicroBatchRunner:
    """Runs batches as micro-batches.

    Args:
        model: the module to train.
        batches: how batches are counted and split.
        device: where micro-batches are moved.
        mode: precision and image size.
        rewound: state that every micro-batch starts with as the whole batch would, such as that of spectral_norm.
        range_of: marks forward and backward of each micro-batch for profilers.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: BatchFormat,
        device: torch.device,
        mode: ForwardMode,
        rewound: Snapshot,
        range_of: Range,
    ) -> None:
        self.model, self.device, self.mode = model, device, mode
        self.batches, self._rewound, self.range_of = batches, rewound, range_of
        self.count_samples = batches.count

    def split(self, batch: Any, micro_batches: int) -> Sequence[Any]:
        """Split a batch into micro-batches.

        Raises:
            UsageError: the user's split function returned another number of them.
        """
        if micro_batches == 1:
            return [batch]
        parts = self.batches.split(batch, micro_batches)
        if len(parts) != micro_batches:
            raise UsageError(
                f"split returned {len(parts)} micro-batches instead of {micro_batches}", "return as many as requested"
            )
        return parts

    def parts(self, batch: Any, samples: int, micro_batches: int) -> list[tuple[Any, int]]:
        """Return the micro-batches of a batch with their numbers of samples."""
        if micro_batches == 1:
            return [(batch, samples)]
        parts = self.split(batch, micro_batches)
        if self.batches.by_structure:
            return list(zip(parts, micro_batch_sizes(samples, micro_batches), strict=True))
        return [(part, self.count_samples(part)) for part in parts]

    def rewinding(self, parts: Sequence[tuple[Any, int]]) -> Iterator[tuple[Any, int]]:
        """Yield micro-batches, each with the rewound state as it was before the first."""
        restore = self._rewound.capture() if len(parts) > 1 else None
        for part in parts:
            if restore is not None:
                restore()
            yield part

    def run(self, batch: Any, work: Work, metrics: Metrics) -> LossAccumulator:
        """Run forward, loss and backward of every micro-batch."""
        batch = self.mode.resized(batch)  # before the normalizer, which may depend on the size
        samples, objective = self.count_samples(batch), work.objective
        is_split = work.micro_batches > 1 or work.is_part
        extra = self._divisor(objective, batch, is_split=is_split)
        keywords = {name: move(count(batch), self.device) for name, count in work.rule.model_arguments.items()}
        losses = LossAccumulator(
            samples,
            extra or tuple(keywords.values()),
            weight_by_samples=objective.weight_by_samples,
            reduction="sum" if work.rule.adds_up else objective.reduction,
        )

        def forward(part: Any) -> Any:
            part = move(part, self.device)
            with autocast(self.mode.precision, self.device.type):
                outputs = objective.outputs(part, extra, **keywords)
                value = (objective.split_loss if is_split else objective.loss)(outputs, part, extra)
            if is_split and work.rule.count is not None and not isinstance(value, LossSum):
                value = mean_as_sum(value, work.rule.count(part))
            metrics.add(outputs, part)
            return value

        parts = self.rewinding(self.parts(batch, samples, work.micro_batches))
        for number, (part, size) in enumerate(parts, 1):
            with self.range_of("micro-batch {}: forward", number):
                value = forward(part)
            with self.range_of("micro-batch {}: backward", number):
                work.backward(losses.add(value, size))
            del value, part  # so that nothing of this micro-batch is alive when the next one begins
        return losses

    def _divisor(self, objective: Objective, batch: Any, *, is_split: bool) -> tuple[Any, ...]:
        """Return the value that losses are divided by, computed from the whole batch, if there is one."""
        if objective.normalizer is not None:
            return (move(objective.normalizer(batch), self.device),)
        count = objective.count(batch) if is_split else None
        return () if count is None else (move(count, self.device),)
