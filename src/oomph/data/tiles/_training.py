"""Windows for training: some around objects, some anywhere, several of an image out of one decoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .._index import ImageIndex
from .._labelled import BoxTarget
from .._labels import Labels
from ..decoding import Window, has_random_access, paste_letterbox
from ..loader import BatchSpec, DecodedImage, ImageRequest
from ._clip import clip_boxes
from ._grid import Tiles


class TileSamples:
    """A sample is a window.

    Windows are drawn some at a time, `each` of one image, and cut from one decoding. Samples are numbered
    (epoch × draws + draw) × each + window, as TileOrder deals them out.

    Args:
        index: the images.
        labels: their boxes.
        tiles: how large windows are.
        each: windows that are drawn together.
        rounds: how often that happens to each image in an epoch; once, without.
        objects: the share of windows that are laid around an object; the others lie anywhere.
        visible: the share of a box that must be inside to count.
        zoom: windows show their objects at most this share larger or smaller, being cut smaller or larger themselves.
        seed: what windows are drawn from.
    """

    reuses = True  # the loader keeps siblings until they are used

    def __init__(  # noqa: PLR0913  each by its name
        self,
        index: ImageIndex,
        labels: Labels,
        tiles: Tiles,
        *,
        each: int = 8,
        rounds: Sequence[int] | None = None,
        objects: float = 0.7,
        visible: float = 0.3,
        zoom: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.index, self.labels, self.tiles, self.each = index, labels, tiles, each
        counts = np.ones(len(index), np.int64) if rounds is None else np.asarray(rounds, np.int64)
        self._ends = np.cumsum(counts)
        self._objects, self._visible, self._zoom, self._seed = objects, visible, zoom, seed

    @property
    def draws(self) -> NDArray[np.int64]:
        """The image of each draw of an epoch."""
        return np.repeat(np.arange(len(self.index)), np.diff(self._ends, prepend=0))

    def image_of(self, sample: int) -> int:
        """The image that a sample is a window of."""
        draw = sample // self.each % int(self._ends[-1])
        return int(np.searchsorted(self._ends, draw, side="right"))

    def windows(self, sample: int) -> list[Window]:
        """All windows that are drawn together with a sample's."""
        rng = np.random.default_rng([self._seed, sample // self.each])
        image = self.image_of(sample)
        shown = self.index[image].shown
        _, boxes = self.labels.of(image)
        around = round(self.each * self._objects) if len(boxes) else 0
        return [self._draw(rng, shown, boxes if number < around else None) for number in range(self.each)]

    def _draw(self, rng: np.random.Generator, shown: tuple[int, int], boxes: NDArray[np.float32] | None) -> Window:
        side = round(self.tiles.side / rng.uniform(1 - self._zoom, 1 + self._zoom))
        sides = [min(side, length) for length in shown]
        box = boxes[rng.integers(len(boxes))] if boxes is not None else None
        starts = []
        for axis in range(2):
            low, high = 0, shown[axis] - sides[axis]
            if box is not None:
                # Anywhere that shows the whole box, or its middle when it is larger than the window.
                begin, end = float(box[axis]), float(box[axis + 2])
                middle = (begin + end) / 2
                low = max(low, min(int(end) + 1 - sides[axis], int(middle)))
                high = min(high, max(int(begin), int(middle) - sides[axis] + 1))
                low, high = min(low, shown[axis] - sides[axis]), max(high, 0)
            starts.append(int(rng.integers(min(low, high), max(low, high) + 1)))
        return Window(starts[0], starts[1], starts[0] + sides[0], starts[1] + sides[1])

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """One window, and its siblings beside where the whole image has to be decoded for it."""
        del rng
        image, windows = self.image_of(index), self.windows(index)
        own = windows.pop(index % self.each)
        return (ImageRequest(image, canvas, own, () if has_random_access(self.index[image]) else tuple(windows)),)

    def build(self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> BoxTarget:
        """The window on its canvas, its labels clipped."""
        del rng
        want, picture = pieces[0]
        spot = paste_letterbox(picture.pixels, picture.window, canvas)
        classes, boxes = self.labels.of(want.index)
        clipped, kept = clip_boxes(boxes, picture.window, self._visible)
        back = clipped + np.tile([picture.window.left, picture.window.top], 2)
        return BoxTarget(want.index, spot, classes[kept], spot.to_canvas(back))


class TileSampler:
    """Windows in an order that lets them share decodings: some draws at a time, all their windows mixed.

    Args:
        recipe: draws the windows.
        batch: samples of a batch.
        canvas: width and height.
        spread: draws whose windows are mixed; each keeps its windows in memory until they are used.
        seed: what the order is drawn from.
        rank: which share this process takes, of `world_size`.
        ranks: how many processes share the draws.
    """

    def __init__(  # noqa: PLR0913  each by its name
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
        self._recipe, self._batch, self._canvas, self._spread = builder, batch, canvas, spread
        self._seed, self._rank, self._world_size = seed, rank, world_size

    @property
    def largest(self) -> BatchSpec:
        """Every batch but the last is full."""
        return BatchSpec(np.zeros(self._batch, np.int64), *self._canvas)

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        """The batches of an epoch."""
        builder, rng = self._recipe, np.random.default_rng([self._seed, number])
        drawn = builder.draws
        draws = rng.permutation(np.flatnonzero(np.isin(drawn, builder.index.usable)))
        draws = np.resize(draws, -(-len(draws) // self._world_size) * self._world_size)[self._rank :: self._world_size]
        samples = []
        for start in range(0, len(draws), self._spread):
            first = (number * len(drawn) + draws[start : start + self._spread]) * builder.each
            samples.append(rng.permutation((first[:, None] + np.arange(builder.each)).ravel()))
        whole = np.concatenate(samples) if samples else np.zeros(0, np.int64)
        return [
            BatchSpec(whole[start : start + self._batch], *self._canvas) for start in range(0, len(whole), self._batch)
        ]
