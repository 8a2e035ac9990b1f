"""Whole images with their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._labels import Labels
from .decoding import Letterbox, paste_letterbox
from .loader import DecodedImage, ImageRequest


@dataclass(frozen=True, eq=False)
class BoxTarget:
    """The target of a sample with boxes.

    Attributes:
        index: the image.
        placed: where it, or the window of it, lies on its canvas.
        classes: of its objects.
        boxes: of its objects, on the canvas.
    """

    index: int
    placed: Letterbox
    classes: NDArray[np.int32]
    boxes: NDArray[np.float64]


class LabeledSamples:
    """A recipe: the whole image, letterboxed; the target is a Chosen with its boxes on the canvas."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """The image itself."""
        del rng
        return (ImageRequest(index, canvas),)

    def build(self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> BoxTarget:
        """Put it into the middle, and its boxes where it went."""
        del rng
        want, picture = pieces[0]
        spot = paste_letterbox(picture.pixels, picture.window, canvas)
        classes, boxes = self._labels.of(want.index)
        return BoxTarget(want.index, spot, classes, spot.to_canvas(boxes))
