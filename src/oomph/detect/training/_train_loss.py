"""The training loss: rescaled for accumulation and ranks, and summed per epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...distributed import SINGLE, DistContext
from ..model import DetectionBatch, DetectionLoss, Positives, StudentOutputs

LOSS_PARTS = ("box_loss", "obj_loss", "cls_loss")
DISTILL_PART = "distill_loss"


class TrainLoss:
    """Rescales the loss so that accumulated gradients sum, as in YOLOv5.

    `DetectionLoss` is already multiplied by the images of its batch. YOLOv5 sums these gradients over the batches of an
    update and over the ranks. The guard averages them instead: over the batches weighted by images
    (`weight_by_samples`), and over the ranks. Multiplying a batch's loss by (images of the update × ranks / images of
    the batch) turns the average back into YOLOv5's sum.

    With several ranks, each batch is normalized by the positives of all ranks.

    The parts are summed on the device and read only when `totals` is called, because reading waits for the GPU.

    Args:
        loss: the detection loss.
        device: where the parts are summed.
        dist: the ranks.
        distills: True if the outputs are those of a student with its teacher.

    Attributes:
        parts: names of the parts.
    """

    weight_by_samples = True

    def __init__(
        self, loss: DetectionLoss, device: torch.device, dist: DistContext = SINGLE, *, distills: bool = False
    ) -> None:
        self._loss, self._dist = loss, dist
        self.parts = (*LOSS_PARTS, DISTILL_PART) if distills else LOSS_PARTS
        self._scale = 1.0
        self._positives: Positives | None = None  # of all ranks
        self._count: Callable[[DetectionBatch], Positives] | None = None
        self._step: Tensor | None = None  # parts of the step under way
        self._totals = torch.zeros(len(self.parts), dtype=torch.float64, device=device)

    def start_step(self, batch: DetectionBatch, update_images: int) -> None:
        """Set the scale for a batch of an update with that many images on this rank, and sum positives over ranks.

        Call it before the guarded step: inside of it, a rank that ran out of memory may be missing.
        """
        self._scale = update_images * self._dist.world_size / len(batch[0])
        if self._dist.is_distributed:
            # Not created in __init__: a resumed run loads its anchors after that.
            self._count = self._count or self._loss.cpu_normalizer()
            local = self._count(batch)
            *counts, images = self._dist.all_reduce_sum([*local.counts.tolist(), local.images])
            self._positives = Positives(torch.tensor(counts, dtype=local.counts.dtype), images)

    def normalizer(self, batch: DetectionBatch) -> Positives:
        """Return the normalizer of a batch; the guard calls this at the start of every attempt of a step."""
        self._step = None
        return self._positives or self._loss.normalizer(batch)

    def __call__(self, outputs: Any, targets: Tensor, normalizer: Any = None) -> Tensor:
        """Return the loss of a micro-batch."""
        distilled = outputs if isinstance(outputs, StudentOutputs) else None
        parts = self._loss.parts(outputs if distilled is None else distilled.levels, targets, normalizer)
        total, step = parts.total, torch.stack((parts.box, parts.obj, parts.cls))
        if distilled is not None:  # like the detection loss, the total is multiplied by the images and its part isn't
            images = len(distilled.losses) if normalizer is None else normalizer.images
            added = distilled.losses.sum()
            total, step = total + added, torch.cat((step, added.detach()[None] / images))
        self._step = step if self._step is None else self._step + step
        return total * self._scale

    def commit_step(self) -> None:
        """Add the parts of the completed step to the epoch."""
        if self._step is not None:
            self._totals.add_(self._step)
        self._step = None

    def start_epoch(self, totals: Sequence[float] | None = None) -> None:
        """Start an epoch, or continue one with the totals of a checkpoint."""
        self._step = None
        self._totals.copy_(torch.tensor(totals or (0.0,) * len(self.parts), dtype=torch.float64))

    def totals(self, *, include_step: bool = False) -> list[float]:
        """Return the sums of the parts over the epoch's steps, optionally with a step that isn't committed yet."""
        step = self._step if include_step and self._step is not None else 0.0
        totals: list[float] = (self._totals + step).tolist()
        return totals
