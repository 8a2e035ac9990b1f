"""All windows of all images, for inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._index import ImageIndex
from .._sampler import Shard, ShuffledSampler
from .._samples import DecodedImage, ImageRequest
from ..decoding import Letterbox, Window, has_random_access, paste_letterbox
from ._grid import Tiles

_WHOLE = Shard()


@dataclass(frozen=True)
class Tile:
    """The target of a window: its image, and its placement on the canvas."""

    index: int
    letterbox: Letterbox


class TileGridSamples:
    """Sample builder for the windows that cover each image, one image after another; the target is a Tile.

        grid = TileGridSamples(index, Tiles(1024))
        for images, _, tiles in Loader(index, builder=grid, sampler=grid.sampler(16, (640, 640)), on_error="drop"):
            ...  # collect detections by tile.index, then merge_tiles()

    Args:
        index: the images.
        tiles: size and overlap of the windows.
        group: adjacent windows that share a decoding if the whole image must be decoded.
    """

    reuses = True  # the loader keeps decoded siblings until they are requested

    def __init__(self, index: ImageIndex, tiles: Tiles, group: int = 8) -> None:
        self._index, self._tiles, self._group = index, tiles, group
        counts = np.zeros(len(index), np.int64)
        for number in index.usable.tolist():
            counts[number] = len(tiles.grid(*index[number].display_size))
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def sampler(self, batch: int, canvas: tuple[int, int], shard: Shard = _WHOLE) -> ShuffledSampler:
        """Return a sampler that visits every window once, in order."""
        return ShuffledSampler(np.arange(len(self)), batch, canvas, shard=shard, even=False)

    def image_of(self, sample: int) -> int:
        """Return the image that a sample is a window of."""
        return int(np.searchsorted(self._ends, sample, side="right"))

    def windows_of(self, image: int) -> list[Window]:
        """Return the windows of an image."""
        return self._tiles.grid(*self._index[image].display_size)

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Request a window, with the other windows of its group as siblings if they share a decoding."""
        del rng
        image = self.image_of(index)
        number = index - (int(self._ends[image - 1]) if image else 0)
        start = number // self._group * self._group
        header = self._index[image]
        siblings = self.windows_of(image)[start : start + self._group]
        window = siblings.pop(number - start)
        # Adjacent windows of a JPEG share the rows that are decoded for them.
        is_separate = has_random_access(header) and header.format != "jpeg"
        return (ImageRequest(image, canvas, window, () if is_separate else tuple(siblings)),)

    def build(self, images: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Tile:
        """Paste the window into the canvas."""
        del rng
        request, picture = images[0]
        return Tile(request.index, paste_letterbox(picture.pixels, picture.window, canvas))
