"""Windows for training: some around objects, some anywhere, several of an image out of one decoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .._index import ImageIndex
from .._labelled import Chosen
from .._labels import Labels
from ..decoding import Window, place
from ..loader import Piece, Planned, Want
from ._clip import clip
from ._grid import Tiles


class TileRecipe:
    """A sample is a window.

    Samples are numbered (epoch × images + image) × each + window, as TileOrder deals them out, so that all windows of
    an image and epoch can be drawn together and cut from one decoding.

    Args:
        index: the images.
        labels: their boxes.
        tiles: how large windows are.
        each: windows of an image in an epoch.
        objects: the share of windows that are laid around an object; the others lie anywhere.
        visible: the share of a box that must be inside to count.
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
        objects: float = 0.7,
        visible: float = 0.3,
        seed: int = 0,
    ) -> None:
        self.index, self.labels, self.tiles, self.each = index, labels, tiles, each
        self._objects, self._visible, self._seed = objects, visible, seed

    def image_of(self, sample: int) -> int:
        """The image that a sample is a window of."""
        return sample // self.each % len(self.index)

    def windows(self, sample: int) -> list[Window]:
        """All windows of a sample's image in its epoch."""
        drawn = sample // self.each
        rng = np.random.default_rng([self._seed, drawn])
        image = drawn % len(self.index)
        shown = self.index[image].shown
        _, boxes = self.labels.of(image)
        around = round(self.each * self._objects) if len(boxes) else 0
        return [self._draw(rng, shown, boxes if number < around else None) for number in range(self.each)]

    def _draw(self, rng: np.random.Generator, shown: tuple[int, int], boxes: NDArray[np.float32] | None) -> Window:
        sides = [min(self.tiles.side, length) for length in shown]
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

    def needs(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[Want]:
        """One window, and its siblings beside."""
        del rng
        windows = self.windows(index)
        own = windows.pop(index % self.each)
        return (Want(self.image_of(index), canvas, own, tuple(windows)),)

    def build(self, pieces: Sequence[Piece], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Chosen:
        """The window on its canvas, its labels clipped."""
        del rng
        want, picture = pieces[0]
        spot = place(picture.pixels, picture.window, canvas)
        classes, boxes = self.labels.of(want.index)
        clipped, kept = clip(boxes, picture.window, self._visible)
        back = clipped + np.tile([picture.window.left, picture.window.top], 2)
        return Chosen(want.index, spot, classes[kept], spot.to_canvas(back))


class TileOrder:
    """Windows in an order that lets them share decodings: some images at a time, all their windows mixed.

    Args:
        recipe: draws the windows.
        batch: samples of a batch.
        canvas: width and height.
        spread: images whose windows are mixed; each keeps its windows in memory until they are used.
        seed: what the order is drawn from.
        rank: which share this process takes, of `ranks`.
        ranks: how many processes share the images.
    """

    def __init__(  # noqa: PLR0913  each by its name
        self,
        recipe: TileRecipe,
        batch: int,
        canvas: tuple[int, int],
        *,
        spread: int = 4,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self._recipe, self._batch, self._canvas, self._spread = recipe, batch, canvas, spread
        self._seed, self._rank, self._ranks = seed, rank, ranks

    @property
    def largest(self) -> Planned:
        """Every batch but the last is full."""
        return Planned(np.zeros(self._batch, np.int64), *self._canvas)

    def epoch(self, number: int) -> Sequence[Planned]:
        """The batches of an epoch."""
        recipe, rng = self._recipe, np.random.default_rng([self._seed, number])
        images = rng.permutation(recipe.index.usable)
        images = np.resize(images, -(-len(images) // self._ranks) * self._ranks)[self._rank :: self._ranks]
        samples = []
        for start in range(0, len(images), self._spread):
            some = images[start : start + self._spread]
            first = (number * len(recipe.index) + some) * recipe.each
            samples.append(rng.permutation((first[:, None] + np.arange(recipe.each)).ravel()))
        whole = np.concatenate(samples) if samples else np.zeros(0, np.int64)
        return [
            Planned(whole[start : start + self._batch], *self._canvas) for start in range(0, len(whole), self._batch)
        ]
