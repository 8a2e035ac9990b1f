"""All windows of all images, for finding things in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._index import ImageIndex
from ..decoding import Letterbox, Window, has_random_access, paste_letterbox
from ..loader import DecodedImage, ImageRequest, ShuffledSampler
from ._grid import Tiles


@dataclass(frozen=True)
class Tile:
    """The target of a window: its image, and where it lies."""

    index: int
    placed: Letterbox


class TileGridSamples:
    """Samples are the windows that cover each image, one image after another.

        grid = GridRecipe(index, Tiles(1024))
        for images, _, tiles in Loader(index, recipe=grid, sampler=grid.order(16, (640, 640)), on_error="drop"):
            ...  # collect what is found by tile.index, then stitch

    Args:
        index: the images.
        tiles: how they are cut.
        each: neighbouring windows that share a decoding, where the whole image has to be decoded for them.
    """

    reuses = True  # the loader keeps siblings until they are used

    def __init__(self, index: ImageIndex, tiles: Tiles, each: int = 8) -> None:
        self._index, self._tiles, self._each = index, tiles, each
        counts = np.zeros(len(index), np.int64)
        for number in index.usable.tolist():
            counts[number] = len(tiles.grid(*index[number].shown))
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def order(self, batch: int, canvas: tuple[int, int], rank: int = 0, ranks: int = 1) -> ShuffledSampler:
        """Every window once, in order; ranks take turns."""
        return ShuffledSampler(np.arange(len(self)), batch, canvas, rank=rank, world_size=ranks, even=False)

    def image_of(self, sample: int) -> int:
        """The image that a sample is a window of."""
        return int(np.searchsorted(self._ends, sample, side="right"))

    def windows_of(self, image: int) -> list[Window]:
        """The windows of an image."""
        return self._tiles.grid(*self._index[image].shown)

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """One window, and those of its group beside."""
        del rng
        image = self.image_of(index)
        number = index - (int(self._ends[image - 1]) if image else 0)
        start = number // self._each * self._each
        header = self._index[image]
        group = self.windows_of(image)[start : start + self._each]
        own = group.pop(number - start)
        # Windows of a JPEG that lie beside each other share the rows that are decoded for them.
        alone = has_random_access(header) and header.format != "jpeg"
        return (ImageRequest(image, canvas, own, () if alone else tuple(group)),)

    def build(self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Tile:
        """The window on its canvas."""
        del rng
        want, picture = pieces[0]
        return Tile(want.index, paste_letterbox(picture.pixels, picture.window, canvas))
