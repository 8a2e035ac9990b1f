"""The loss of a run's batches, shared out over pieces, batches and ranks, and what it was made of in an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..model._loss import DetectionLoss, Positives
from ._dist import Ranks

PARTS = ("box", "objectness", "classes")


class GroupLoss:
    """The loss, weighed so that batches whose gradients are averaged by the guard are summed, as the recipe has it.

    Batches that belong to one update count by their images (`weight_by_samples`), as in YOLOv5: that is no gradient of one
    large batch, and isn't meant to be.

    The parts are added up on the device, a tensor a piece, and read when somebody asks: reading waits for a GPU.
    """

    weight_by_samples = True

    def __init__(self, loss: DetectionLoss, device: torch.device) -> None:
        self._loss, self.factor = loss, 1.0
        self._whole: Positives | None = None
        self._count: Callable[[Any], Positives] | None = None
        self._step: Tensor | None = None  # the parts of the step under way
        self._sums = torch.zeros(len(PARTS), dtype=torch.float64, device=device)

    def share(self, batch: Any, ranks: Ranks) -> None:
        """Count the positives of all ranks' batches; before the step, where no rank is missing because it ran short."""
        if ranks.are_several:
            self._count = self._count or self._loss.counter()
            own = self._count(batch)
            *counts, images = ranks.summed([*own.counts.tolist(), own.images])
            self._whole = Positives(torch.tensor(counts, dtype=own.counts.dtype), images)

    def normalizer(self, batch: Any) -> Any:
        """What the pieces of a batch share; the guard asks at the start of a step, and again when it tries anew."""
        self._step = None
        return self._whole or self._loss.normalizer(batch)

    def __call__(self, outputs: Any, targets: Tensor, normalizer: Any = None) -> Tensor:
        """The loss of a piece."""
        found = self._loss.parts(outputs, targets, normalizer)
        parts = torch.stack((found.box, found.objectness, found.classes))
        self._step = parts if self._step is None else self._step + parts
        return found.total * self.factor

    def count(self) -> None:
        """The step is done: its parts belong to the epoch."""
        if self._step is not None:
            self._sums.add_(self._step)
        self._step = None

    def begin(self, sums: Sequence[float] = (0.0,) * len(PARTS)) -> None:
        """Begin an epoch, or go on in the middle of one with what `sums` said."""
        self._step = None
        self._sums.copy_(torch.tensor(sums, dtype=torch.float64))

    def sums(self, *, with_step: bool = False) -> list[float]:
        """The parts of all steps of this epoch; `with_step` that of a step that was done and not counted yet too."""
        more = self._step if with_step and self._step is not None else 0.0
        found: list[float] = (self._sums + more).tolist()
        return found
