"""Large images cut into tiles, for training and for validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...data import (
    DecodedImage,
    ImageIndex,
    ImageRequest,
    Labels,
    Loader,
    ShuffledSampler,
    TileDraws,
    TileGridSamples,
    Tiles,
    TileSampler,
    TileSamples,
    decode_windows_cost,
    default_budget,
    has_random_access,
)
from ...errors import UsageError
from ...units import MIB
from ._augmentation import Augmentation, compose_sample
from ._indexed_split import IndexedSplit
from ._samples import LoadConfig, collate_boxes

_MIN_TILE = 32  # the largest stride
_TRAIN_TILES_PER_DECODE = 8
_VAL_TILES_PER_DECODE = 32
_MAX_ZOOM = 0.5  # relative change of object size
_MIXED_DECODES = 4  # decoded images with tiles that are shuffled together
_OBJECT_FRACTION = 0.7  # of training tiles that are placed around an object
_MIN_DECODE_BYTES = 64 * MIB
_LARGE_IMAGE = 4.0  # times the image size


def tiling(tiles: bool | int, imgsz: int) -> Tiles | None:  # noqa: FBT001  a switch that may be a number
    """Return the tiling of a `tiles` setting: None if False, tiles of `imgsz` pixels if True, else of that many pixels.

    Raises:
        UsageError: the tiles are too small.
    """
    if tiles is False or tiles == 0:
        return None
    side = imgsz if tiles is True else tiles
    if side < _MIN_TILE:
        raise UsageError(f"tiles of {side} pixels are too small", f"use at least {_MIN_TILE}, usually the image size")
    return Tiles(side)


class AugmentedTileSamples:
    """Training samples that are tiles, recolored and flipped.

    Tiles are cut at random places and at a random scale. Translation, scaling and mosaics would add nothing.
    """

    reuses = True  # the loader keeps tiles of the same decode until they are used

    def __init__(self, tiles: TileSamples, augmentation: Augmentation) -> None:
        self._tiles = tiles
        self._augmentation = replace(augmentation, mosaic=0.0, mixup=0.0, scale=0.0, translate=0.0)

    def image_of(self, sample: int) -> int:
        """Return the image of a sample."""
        return self._tiles.image_of(sample)

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Return the sample's tile."""
        return self._tiles.requests(index, canvas, rng)

    def build(
        self, decoded: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator
    ) -> NDArray[np.float32]:
        """Draw the sample; return its boxes as fractions of the canvas."""
        target = self._tiles.build(decoded, canvas, rng)
        low, high = target.boxes[:, :2], target.boxes[:, 2:]
        sides = np.array([canvas.shape[1], canvas.shape[0]])
        rows = np.column_stack((target.classes, (low + high) / 2 / sides, (high - low) / sides)).astype(np.float32)
        return compose_sample([(canvas.copy(), rows)], canvas, self._augmentation, rng)


def tile_train_loader(split: IndexedSplit, tiles: Tiles, augmentation: Augmentation, config: LoadConfig) -> Loader:
    """Return a loader of training tiles.

    An epoch has as many tiles of an image as it has objects, at least a few, and at most as many as cover it.
    """
    zoom = min(augmentation.scale, _MAX_ZOOM)
    samples = TileSamples(
        split.index,
        boxes_in_pixels(split),
        tiles,
        TileDraws(
            windows_per_draw=_TRAIN_TILES_PER_DECODE,
            draws_per_image=_decodes_per_image(split, tiles),
            object_fraction=_OBJECT_FRACTION,
            zoom=zoom,
            seed=config.seed,
        ),
    )
    sampler = TileSampler(
        samples,
        config.batch,
        (config.imgsz, config.imgsz),
        spread=_MIXED_DECODES,
        seed=config.seed,
        rank=config.shard.rank,
        world_size=config.shard.world_size,
    )
    return Loader(
        split.index,
        config.imgsz,
        config.batch,
        builder=AugmentedTileSamples(samples, augmentation),
        sampler=sampler,
        collate=collate_boxes,
        seed=config.seed,
        threads=config.threads,
        budget=_decode_budget(split.index, Tiles(round(tiles.side / (1 - zoom))), _TRAIN_TILES_PER_DECODE),
    )


def tile_val_loader(split: IndexedSplit, tiles: Tiles, config: LoadConfig) -> Loader:
    """Return a loader of the tiles that cover the images; a rank gets all tiles of an image or none."""
    samples = TileGridSamples(split.index, tiles, _VAL_TILES_PER_DECODE)
    images = np.array([samples.image_of(sample) for sample in range(len(samples))], np.int64)
    own_samples = np.flatnonzero(images % config.shard.world_size == config.shard.rank)
    return Loader(
        split.index,
        config.imgsz,
        config.batch,
        builder=samples,
        sampler=ShuffledSampler(own_samples, config.batch, (config.imgsz, config.imgsz), even=False),
        threads=config.threads,
        on_error="drop",
        budget=_decode_budget(split.index, tiles, _VAL_TILES_PER_DECODE),
    )


def _decodes_per_image(split: IndexedSplit, tiles: Tiles) -> list[int]:
    objects = np.diff(split.labels.starts).tolist()
    wanted = [max(round(count / _OBJECT_FRACTION), _TRAIN_TILES_PER_DECODE) for count in objects]
    return [
        -(-min(cover, count) // _TRAIN_TILES_PER_DECODE)
        for cover, count in zip(_covering_tiles(split, tiles), wanted, strict=True)
    ]


def _covering_tiles(split: IndexedSplit, tiles: Tiles) -> list[int]:
    """Return how many tiles side by side cover each image."""
    return [-(-high // tiles.side) * -(-wide // tiles.side) for high, wide in split.shapes]


def samples_per_epoch(split: IndexedSplit, tiles: Tiles | None) -> int:
    """Return the number of samples that show every pixel once: the images, or the tiles that cover them."""
    return len(split.index) if tiles is None else sum(_covering_tiles(split, tiles))


def boxes_in_pixels(split: IndexedSplit) -> Labels:
    """Return the boxes of a split as corners in pixels of the images."""
    table = split.labels
    sides = np.array([(wide, high) for high, wide in split.shapes]).reshape(-1, 2)
    per_box = np.repeat(sides, np.diff(table.starts), 0)
    center = table.boxes[:, 1:3].astype(np.float64) * per_box
    half = table.boxes[:, 3:5].astype(np.float64) * per_box / 2
    corners = np.concatenate((center - half, center + half), 1).astype(np.float32)
    return Labels((), table.boxes[:, 0].astype(np.int32), corners, table.starts)


def _decode_budget(index: ImageIndex, tiles: Tiles, tiles_per_decode: int) -> int:
    """Return the bytes for decoding tiles of a few images at once, estimated from their headers."""
    largest = waiting = 0
    for header in index:
        windows = tiles.grid(*header.display_size)[: 1 if has_random_access(header) else tiles_per_decode]
        results = sum((right - left) * (bottom - top) * 3 for left, top, right, bottom in windows)
        largest = max(largest, decode_windows_cost(header, windows) + results)
        waiting = max(waiting, results * _MIXED_DECODES * (len(windows) > 1))
    # A quarter of the budget holds tiles that wait for their turn.
    return min(max(_MIN_DECODE_BYTES, 3 * largest, 4 * waiting), max(default_budget(), _MIN_DECODE_BYTES))


def suggest_tiles(split: IndexedSplit, imgsz: int) -> str | None:
    """Return a suggestion to use tiles if objects are too small in the downscaled images, else None."""
    boxes = boxes_in_pixels(split).boxes
    if not len(boxes):
        return None
    median_side = float(np.median((boxes[:, 2:] - boxes[:, :2]).min(1)))
    longest = int(np.median([max(shape) for shape in split.shapes]))
    if not Tiles(imgsz).is_worthwhile(longest, longest, imgsz, median_side):
        return None
    return (
        f"half of the objects are at most {median_side * imgsz / longest:.1f} pixels wide or high when images of "
        f"{longest:,} pixels are downscaled to {imgsz}: `tiles: {imgsz}` in the settings file trains on full-size tiles"
    )


def count_large_images(index: ImageIndex, imgsz: int) -> int:
    """Return the number of images so large that small objects vanish when they are downscaled to `imgsz`."""
    return sum(max(header.display_size) > _LARGE_IMAGE * imgsz for header in index)
