"""Random windows for training: some around objects, several from one decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._index import ImageIndex
from .._labels import Labels
from .._sampler import BatchSpec
from .._samples import BoxTarget, DecodedImage, ImageRequest
from ..decoding import Window, has_random_access, paste_letterbox
from ._clip import clip_boxes
from ._grid import Tiles


@dataclass(frozen=True)
class TileDraws:
    """Settings of the random windows.

    Attributes:
        windows_per_draw: windows of one image that are drawn together.
        draws_per_image: draws of each image in an epoch; one by default.
        object_fraction: fraction of the windows that are placed around an object; the others are placed anywhere.
        min_visible: fraction of a box that must be inside a window for its object to count.
        zoom: windows are cut up to this fraction smaller or larger, so that objects change in size.
        seed: seed of the random windows.
    """

    windows_per_draw: int = 8
    draws_per_image: Sequence[int] | None = None
    object_fraction: float = 0.7
    min_visible: float = 0.3
    zoom: float = 0.0
    seed: int = 0


_DEFAULT_DRAWS = TileDraws()


class TileSamples:
    """Sample builder for random windows; the target is a BoxTarget.

    The windows of a draw are cut from one decoding. A sample is numbered (epoch × draws + draw) × windows_per_draw +
    window, as TileSampler requests it.

    Args:
        index: the images.
        labels: their boxes.
        tiles: size of the windows.
        draws: settings of the random windows.
    """

    reuses = True  # the loader keeps decoded siblings until they are requested

    def __init__(self, index: ImageIndex, labels: Labels, tiles: Tiles, draws: TileDraws = _DEFAULT_DRAWS) -> None:
        self.index, self.labels, self.tiles, self.draws = index, labels, tiles, draws
        per_image = draws.draws_per_image
        counts = np.ones(len(index), np.int64) if per_image is None else np.asarray(per_image, np.int64)
        self._draw_ends = np.cumsum(counts)

    @property
    def drawn_images(self) -> NDArray[np.int64]:
        """The image of each draw of an epoch."""
        return np.repeat(np.arange(len(self.index)), np.diff(self._draw_ends, prepend=0))

    def image_of(self, sample: int) -> int:
        """Return the image that a sample is a window of."""
        draw = sample // self.draws.windows_per_draw % int(self._draw_ends[-1])
        return int(np.searchsorted(self._draw_ends, draw, side="right"))

    def windows(self, sample: int) -> list[Window]:
        """Return all windows of the draw that a sample belongs to."""
        count = self.draws.windows_per_draw
        rng = np.random.default_rng([self.draws.seed, sample // count])
        image = self.image_of(sample)
        size = self.index[image].display_size
        _, boxes = self.labels.of(image)
        around_objects = round(count * self.draws.object_fraction) if len(boxes) else 0
        return [self._draw_window(rng, size, boxes if number < around_objects else None) for number in range(count)]

    def _draw_window(
        self, rng: np.random.Generator, size: tuple[int, int], boxes: NDArray[np.float32] | None
    ) -> Window:
        side = round(self.tiles.side / rng.uniform(1 - self.draws.zoom, 1 + self.draws.zoom))
        sides = [min(side, length) for length in size]
        box = boxes[rng.integers(len(boxes))] if boxes is not None else None
        starts = []
        for axis in range(2):
            low, high = 0, size[axis] - sides[axis]
            if box is not None:
                # Any position that contains the whole box, or its center if it is larger than the window.
                begin, end = float(box[axis]), float(box[axis + 2])
                center = (begin + end) / 2
                low = max(low, min(int(end) + 1 - sides[axis], int(center)))
                high = min(high, max(int(begin), int(center) - sides[axis] + 1))
                low, high = min(low, size[axis] - sides[axis]), max(high, 0)
            starts.append(int(rng.integers(min(low, high), max(low, high) + 1)))
        return Window(starts[0], starts[1], starts[0] + sides[0], starts[1] + sides[1])

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Request a window, with the other windows of its draw as siblings if the whole image must be decoded."""
        del rng
        image, windows = self.image_of(index), self.windows(index)
        window = windows.pop(index % self.draws.windows_per_draw)
        siblings = () if has_random_access(self.index[image]) else tuple(windows)
        return (ImageRequest(image, canvas, window, siblings),)

    def build(self, images: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> BoxTarget:
        """Paste the window into the canvas and clip its boxes."""
        del rng
        request, picture = images[0]
        window = picture.window
        letterbox = paste_letterbox(picture.pixels, window, canvas)
        classes, boxes = self.labels.of(request.index)
        clipped, kept = clip_boxes(boxes, window, self.draws.min_visible)
        in_image = clipped + np.tile([window.left, window.top], 2)
        return BoxTarget(request.index, letterbox, classes[kept], letterbox.to_canvas(in_image))


class TileSampler:
    """Batch sampler for TileSamples: mixes the windows of a few draws, so that they share decodings.

    Args:
        builder: draws the windows.
        batch: samples per batch.
        canvas: width and height.
        spread: number of draws that are mixed. Their windows stay in memory until they are used.
        seed: seed of the order.
        rank: rank of this process.
        world_size: number of processes that share the draws.
    """

    def __init__(  # noqa: PLR0913  all after the canvas are optional and named
        self,
        builder: TileSamples,
        batch: int,
        canvas: tuple[int, int],
        *,
        spread: int = 4,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._builder, self._batch, self._canvas, self._spread = builder, batch, canvas, spread
        self._seed, self._rank, self._world_size = seed, rank, world_size

    @property
    def largest(self) -> BatchSpec:
        """A full batch; only the last batch may be smaller."""
        return BatchSpec(np.zeros(self._batch, np.int64), *self._canvas)

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        """Return the batches of an epoch."""
        builder, rng = self._builder, np.random.default_rng([self._seed, number])
        windows_per_draw, images = builder.draws.windows_per_draw, builder.drawn_images
        draws = rng.permutation(np.flatnonzero(np.isin(images, builder.index.usable)))
        draws = np.resize(draws, -(-len(draws) // self._world_size) * self._world_size)[self._rank :: self._world_size]
        mixed = []
        for start in range(0, len(draws), self._spread):
            first = (number * len(images) + draws[start : start + self._spread]) * windows_per_draw
            mixed.append(rng.permutation((first[:, None] + np.arange(windows_per_draw)).ravel()))
        samples = np.concatenate(mixed) if mixed else np.zeros(0, np.int64)
        return [
            BatchSpec(samples[start : start + self._batch], *self._canvas)
            for start in range(0, len(samples), self._batch)
        ]
