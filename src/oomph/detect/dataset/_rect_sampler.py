"""Rectangular batches for validation: images of similar aspect share a canvas with little padding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...data import BatchSpec, Shard

_STRIDE = 32
_PADDING = 0.5  # strides of gray added to each side: it helps objects at the edge


@dataclass(frozen=True)
class RectBatch:
    """Indices of images that are validated together, and height and width of their canvas."""

    indices: tuple[int, ...]
    size: tuple[int, int]


def rect_batches(shapes: Sequence[tuple[int, int]], imgsz: int, batch: int) -> list[RectBatch]:
    """Group images (height, width) by aspect ratio, so that each batch shares a canvas with little padding.

    The longer side of every image becomes `imgsz`. The sides of the canvas are multiples of 32 and larger by half a
    stride or more.
    """
    if not shapes:
        return []
    aspects = np.array([high / wide for high, wide in shapes])
    order = np.argsort(aspects, kind="stable")
    batches = []
    for begin in range(0, len(order), batch):
        indices = order[begin : begin + batch]
        lowest, highest = aspects[indices[0]], aspects[indices[-1]]
        # The canvas must hold the tallest and the widest image.
        tall, wide = min(highest, 1.0), min(1 / lowest, 1.0)
        sides = tuple(math.ceil(side * imgsz / _STRIDE + _PADDING) * _STRIDE for side in (tall, wide))
        batches.append(RectBatch(tuple(int(index) for index in indices), (sides[0], sides[1])))
    return batches


@dataclass(frozen=True)
class RectangularSampler:
    """Batch sampler over `rect_batches`; ranks take turns, batch by batch."""

    shapes: tuple[tuple[int, int], ...]
    imgsz: int
    batch: int
    shard: Shard = Shard()  # noqa: RUF009  frozen

    @property
    def largest(self) -> BatchSpec:
        """The batch with the most pixels."""
        return max(self._batches(), key=lambda batch: len(batch.indices) * batch.width * batch.height)

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        """Return this rank's batches, which are the same in every epoch."""
        del number
        return self._batches()[self.shard.rank :: self.shard.world_size]

    def _batches(self) -> list[BatchSpec]:
        return [
            BatchSpec(np.array(batch.indices, np.int64), batch.size[1], batch.size[0])
            for batch in rect_batches(list(self.shapes), self.imgsz, self.batch)
        ]
