"""Large images by windows: training samples cut from them, and what was found in windows put together again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...data import (
    DecodedImage,
    Detections,
    ImageIndex,
    ImageRequest,
    Labels,
    Loader,
    ShuffledSampler,
    Tile,
    TileGridSamples,
    Tiles,
    TileSampler,
    TileSamples,
    decode_windows_cost,
    default_budget,
    has_random_access,
    merge_tiles,
)
from ...errors import UsageError
from ...units import MIB
from ..metrics._scores import ImageResult
from ._augmentation import Augmentation, compose, to_pixels
from ._indexed_split import Material, gather

if TYPE_CHECKING:
    from torch import Tensor

_EACH = 8  # training windows of a decoding
_ROW = 32  # windows of a grid that share one
_ZOOM = 0.5  # objects are shown at most this share larger or smaller
_SPREAD = 4  # decodings whose windows wait for each other
_OBJECTS = 0.7  # share of training windows that lie around an object
_LEAST = 64 * MIB  # for decoding windows
_LARGE = 4.0  # times the size of its view that make an image large


def cut(tiles: bool | int, size: int) -> Tiles | None:  # noqa: FBT001  a switch that may be a number
    """How images are cut: not at all, into windows of the size of the network's view, or of so many pixels.

    Raises:
        UsageError: no window can be that small.
    """
    if tiles is False or tiles == 0:
        return None
    side = size if tiles is True else tiles
    if side < 32:  # noqa: PLR2004  the largest stride
        raise UsageError(f"tiles of {side} pixels are asked for", "make them at least 32, usually as large as the size")
    return Tiles(side)


class WindowSamples:
    """A recipe for the loader: training samples that are windows, coloured and flipped.

    Windows lie where they like and are cut larger or smaller than asked, so that nothing has to be moved or scaled
    afterwards; four of them in one would show no more than one does.
    """

    reuses = True

    def __init__(self, windows: TileSamples, augmentation: Augmentation) -> None:
        self._windows = windows
        self._augmentation = replace(augmentation, mosaic=0.0, mixup=0.0, scale=0.0, translate=0.0)

    def image_of(self, sample: int) -> int:
        """The image that a sample is a window of."""
        return self._windows.image_of(sample)

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """The window."""
        return self._windows.requests(index, canvas, rng)

    def build(
        self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """Paint the sample; its boxes, as fractions of the canvas, are the target."""
        shown = self._windows.build(pieces, canvas, rng)
        low, high = shown.boxes[:, :2], shown.boxes[:, 2:]
        sides = np.array([canvas.shape[1], canvas.shape[0]])
        rows = np.column_stack((shown.classes, (low + high) / 2 / sides, (high - low) / sides)).astype(np.float32)
        return compose([(canvas.copy(), rows)], canvas, self._augmentation, rng)


def window_loader(  # noqa: PLR0913  each by its name
    material: Material,
    tiles: Tiles,
    size: int,
    batch: int,
    augmentation: Augmentation,
    *,
    seed: int = 0,
    rank: int = 0,
    ranks: int = 1,
    threads: int | None = None,
) -> Loader:
    """Batches of training windows.

    An epoch has as many windows of an image as it has objects, but no more than cover it, and a few of one with none.
    """
    zoom = min(augmentation.scale, _ZOOM)
    recipe = TileSamples(
        material.index,
        in_pixels(material),
        tiles,
        each=_EACH,
        rounds=_rounds(material, tiles),
        objects=_OBJECTS,
        zoom=zoom,
        seed=seed,
    )
    order = TileSampler(recipe, batch, (size, size), spread=_SPREAD, seed=seed, rank=rank, world_size=ranks)
    return Loader(
        material.index,
        size,
        batch,
        builder=WindowSamples(recipe, augmentation),
        sampler=order,
        collate=gather,
        seed=seed,
        threads=threads,
        budget=_budget(material.index, Tiles(round(tiles.side / (1 - zoom))), _EACH),
    )


def _rounds(material: Material, tiles: Tiles) -> list[int]:
    counts = np.diff(material.labels.starts).tolist()
    wanted = [max(round(objects / _OBJECTS), _EACH) for objects in counts]
    return [-(-min(cover, own) // _EACH) for cover, own in zip(_covers(material, tiles), wanted, strict=True)]


def _covers(material: Material, tiles: Tiles) -> list[int]:
    """How many windows side by side cover each image."""
    return [-(-high // tiles.side) * -(-wide // tiles.side) for high, wide in material.shapes]


def samples_of(material: Material, tiles: Tiles | None) -> int:
    """Views of the images that show each of their pixels once: themselves, or windows."""
    return len(material.index) if tiles is None else sum(_covers(material, tiles))


def in_pixels(material: Material) -> Labels:
    """The boxes of a split as windows are cut: corners in pixels of the images."""
    rows = material.labels
    sides = np.repeat(
        np.array([(wide, high) for high, wide in material.shapes]).reshape(-1, 2), np.diff(rows.starts), 0
    )
    centre, half = rows.boxes[:, 1:3].astype(np.float64) * sides, rows.boxes[:, 3:5].astype(np.float64) * sides / 2
    corners = np.concatenate((centre - half, centre + half), 1).astype(np.float32)
    return Labels((), rows.boxes[:, 0].astype(np.int32), corners, rows.starts)


def grid_loader(  # noqa: PLR0913  each by its name
    material: Material,
    tiles: Tiles,
    size: int,
    batch: int,
    *,
    rank: int = 0,
    ranks: int = 1,
    threads: int | None = None,
) -> Loader:
    """Batches of the windows that cover images; a rank takes all windows of an image, or none."""
    recipe = TileGridSamples(material.index, tiles, _ROW)
    owners = np.array([recipe.image_of(sample) for sample in range(len(recipe))], np.int64)
    order = ShuffledSampler(np.flatnonzero(owners % ranks == rank), batch, (size, size), even=False)
    budget = _budget(material.index, tiles, _ROW)
    return Loader(
        material.index, size, batch, builder=recipe, sampler=order, threads=threads, on_error="drop", budget=budget
    )


def _budget(index: ImageIndex, tiles: Tiles, each: int) -> int:
    """Bytes for decoding: what the windows of some images need side by side, as their headers say."""
    worst = waiting = 0
    for header in index:
        windows = tiles.grid(*header.shown)[: 1 if has_random_access(header) else each]
        results = sum((right - left) * (bottom - top) * 3 for left, top, right, bottom in windows)
        worst = max(worst, decode_windows_cost(header, windows) + results)
        waiting = max(waiting, results * _SPREAD * (len(windows) > 1))
    # A quarter is for windows that wait for their turn.
    return min(max(_LEAST, 3 * worst, 4 * waiting), max(default_budget(), _LEAST))


def stitched(
    found: Mapping[int, Tensor], places: Mapping[int, Tile], material: Material, *, across_classes: bool = False
) -> dict[int, ImageResult]:
    """What was found in the windows of images, as found in the images, each object once, beside what is there."""
    windows: dict[int, list[int]] = {}
    for sample in sorted(found):
        windows.setdefault(places[sample].index, []).append(sample)
    results = {}
    for image in sorted(windows):
        high, wide = material.shapes[image]
        parts = [(places[sample].placed, _found(found[sample])) for sample in windows[image]]
        whole = merge_tiles(parts, (wide, high), across_classes=across_classes)
        rows = np.column_stack((whole.boxes, whole.scores, whole.classes)).astype(np.float32)
        truth = to_pixels(material.labels.of(image), (float(wide), float(high)), (0.0, 0.0))
        results[image] = ImageResult(rows, truth)
    return results


def _found(boxes: Tensor) -> Detections:
    rows = boxes.detach().double().cpu().numpy()
    return Detections(rows[:, :4], rows[:, 4], rows[:, 5].astype(np.int64))


def proposal(material: Material, size: int) -> str | None:
    """A sentence where objects are too small to be seen in whole images; None where they aren't."""
    boxes = in_pixels(material).boxes
    if not len(boxes):
        return None
    smaller = float(np.median((boxes[:, 2:] - boxes[:, :2]).min(1)))
    longest = int(np.median([max(shape) for shape in material.shapes]))
    if not Tiles(size).pay(longest, longest, size, smaller):
        return None
    seen = smaller * size / longest
    return (
        f"images of {longest:,} pixels squeezed to {size} show half of their objects with {seen:.1f} pixels or less: "
        f"`tiles: {size}` in the settings file trains on windows of them"
    )


def large(index: ImageIndex, size: int) -> int:
    """How many images are so large that small objects vanish when they are squeezed to a size."""
    return sum(max(header.shown) > _LARGE * size for header in index)
