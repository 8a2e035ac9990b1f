"""Sample builders of the loader; worker processes import this module, so it must not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data import DecodedImage, ImageRequest, LetterboxSamples, Shard
from ._augmentation import Augmentation, choose_images, compose_sample
from ._labels import LabelTable


@dataclass(frozen=True)
class LoadConfig:
    """Settings for loading a split.

    Attributes:
        imgsz: side of the samples.
        batch: samples per batch, on this rank.
        seed: seed of order and augmentation.
        shard: the rank's part of the samples.
        threads: number of decoding threads; chosen by the loader if None.
        budget: bytes that decoding may use; chosen by the loader if None.
    """

    imgsz: int
    batch: int
    seed: int = 0
    shard: Shard = Shard()  # noqa: RUF009  frozen
    threads: int | None = None
    budget: int | None = None


class MosaicSamples:
    """Training samples: augmented mosaics, or single images."""

    def __init__(self, labels: LabelTable, augmentation: Augmentation) -> None:
        self._labels, self._augmentation = labels, augmentation
        self.images = 8 if augmentation.mixup else 4  # maximum per sample; the loader reads it

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Return the images of a sample, none larger than the canvas."""
        chosen = choose_images(index, len(self._labels), self._augmentation, rng)
        return [ImageRequest(number, canvas) for number in chosen]

    def build(
        self, decoded: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """Draw the sample; return its boxes as fractions of the canvas."""
        images = [(item.picture.pixels, self._labels.of(item.request.index)) for item in decoded]
        return compose_sample(images, canvas, self._augmentation, rng)


class RectLetterboxSamples(LetterboxSamples):
    """Whole images letterboxed into a rectangle that may be larger than the image size.

    The longer side of an image becomes `imgsz`, never more, even where the batch's canvas is larger.
    """

    def __init__(self, imgsz: int) -> None:
        self._imgsz = imgsz

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Return the image, at most `imgsz` pixels a side."""
        return super().requests(index, (min(canvas[0], self._imgsz), min(canvas[1], self._imgsz)), rng)


def collate_boxes(boxes: Sequence[NDArray[np.float32]]) -> Any:
    """Join the boxes of a batch's samples into a tensor of rows that start with the sample's number."""
    import torch  # noqa: PLC0415  worker processes don't import it

    sample = np.repeat(np.arange(len(boxes), dtype=np.float32), [len(rows) for rows in boxes])
    rows = np.concatenate([rows.reshape(-1, 5) for rows in boxes]).astype(np.float32)
    return torch.from_numpy(np.column_stack((sample, rows)))
