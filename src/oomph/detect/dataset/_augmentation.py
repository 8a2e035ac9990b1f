"""Training samples: four images in one, moved, scaled, coloured and flipped.

A sample is a pure function of seed, epoch and index, whoever makes it and in whatever order: that is what lets a run
resume in the middle of an epoch bit for bit. Where images are only moved and scaled, as by default, each goes into the
result in one step; the canvas of four whole images is made only for rotation, shear and perspective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ._pixels import Matrix, Pixels, Placed, blank, recolour, scale_into, turn_over, warp

Labels = NDArray[np.float32]  # (n, 5): class, x, y, w, h as fractions
Sample = tuple[Pixels, Labels]

_TILES = 4
_SMALLEST = 2.0  # pixels a side
_LEFT = 0.1  # of a box's area, after it was cut
_THINNEST = 100.0
_BLEND = 32.0


@dataclass(frozen=True)
class Augmentation:
    """How strongly samples are changed; the defaults are YOLOv5's low ones, all zero is none.

    Attributes:
        mosaic, mixup: share of samples made of four images, and of those, share that are two samples in one.
        hue, saturation, value: at most this share more or less.
        degrees, shear: at most so many degrees.
        translate, scale: at most this share of the side, and more or less.
        perspective: at most so much, 0 to 0.001.
        flip_vertical, flip_horizontal: shares of samples turned over.
    """

    mosaic: float = 1.0
    mixup: float = 0.0
    hue: float = 0.015
    saturation: float = 0.7
    value: float = 0.4
    degrees: float = 0.0
    shear: float = 0.0
    translate: float = 0.1
    scale: float = 0.5
    perspective: float = 0.0
    flip_vertical: float = 0.0
    flip_horizontal: float = 0.5

    @property
    def upright(self) -> bool:
        """Whether images are only moved and scaled."""
        return not (self.degrees or self.shear or self.perspective)


class Source(Protocol):
    """Where samples come from."""

    def __len__(self) -> int:
        """How many images there are."""
        ...

    def image(self, index: int) -> Pixels:
        """The pixels of an image, at any resolution."""
        ...

    def labels(self, index: int) -> Labels:
        """The boxes of an image, as fractions of it."""
        ...


def choose(index: int, count: int, augmentation: Augmentation, rng: np.random.Generator) -> tuple[int, ...]:
    """The images that a sample is made of: itself alone, four in a mosaic, or two mosaics in one."""
    if rng.random() >= augmentation.mosaic:
        return (index,)
    mosaics = 2 if rng.random() < augmentation.mixup else 1
    found: list[int] = []
    for first in (index, int(rng.integers(count)))[:mosaics]:
        four = np.array([first, *rng.integers(count, size=_TILES - 1)])
        rng.shuffle(four)
        found += [int(number) for number in four]
    return tuple(found)


def compose(parts: Sequence[Sample], canvas: Pixels, augmentation: Augmentation, rng: np.random.Generator) -> Labels:
    """Paint the chosen images onto a square canvas, every pixel of it.

    Args:
        parts: pixels, at any resolution, and labels of the images that `choose` named, in its order.
        canvas: what is painted on.
        augmentation: how it is changed.
        rng: the generator that `choose` drew from.

    Returns:
        The boxes that are to be seen, as fractions of the canvas.
    """
    size = canvas.shape[0]
    if len(parts) < _TILES:
        image, boxes = _alone(parts[0], size, augmentation, rng)
    else:
        image, boxes = _mosaic(parts[:_TILES], size, augmentation, rng)
        if len(parts) > _TILES:
            image, boxes = _mix((image, boxes), _mosaic(parts[_TILES:], size, augmentation, rng), rng)
    image = _colour(image, augmentation, rng)
    return to_fractions(_flip(image, boxes, canvas, augmentation, rng), size)


def sample(source: Source, index: int, size: int, augmentation: Augmentation, key: Sequence[int]) -> Sample:
    """One training sample: pixels (size, size, 3) and boxes as fractions of them.

    Args:
        source: where images and labels come from.
        index: the image that the sample is about.
        size: the side of the result.
        augmentation: how it is changed.
        key: what the randomness is drawn from, such as (seed, epoch, index).
    """
    rng = np.random.default_rng(key)
    chosen = choose(index, len(source), augmentation, rng)
    canvas = np.empty((size, size, 3), dtype=np.uint8)
    labels = compose([(source.image(one), source.labels(one)) for one in chosen], canvas, augmentation, rng)
    return canvas, labels


def to_pixels(labels: Labels, scale: tuple[float, float], shift: tuple[float, float]) -> Labels:
    """Fractions (n, 5) to class and corners, x to `scale * x + shift`."""
    boxes = labels.copy()
    for axis in (0, 1):
        centre, half = labels[:, 1 + axis], labels[:, 3 + axis] / 2
        boxes[:, 1 + axis] = (centre - half) * scale[axis] + shift[axis]
        boxes[:, 3 + axis] = (centre + half) * scale[axis] + shift[axis]
    return boxes


def to_fractions(boxes: Labels, size: int) -> Labels:
    """Class and corners in pixels of a square to fractions of it."""
    labels = boxes.copy()
    labels[:, 1:3] = (boxes[:, 1:3] + boxes[:, 3:5]) / 2 / size
    labels[:, 3:5] = (boxes[:, 3:5] - boxes[:, 1:3]) / size
    return labels


@dataclass(frozen=True)
class _Tile:
    """An image and how it lies on the canvas."""

    image: Pixels
    labels: Labels
    placed: Placed

    def boxes(self) -> Labels:
        """Its boxes there, in pixels."""
        sides = self.image.shape[1::-1]
        across, down = (scale * side for scale, side in zip(self.placed.scale, sides, strict=True))
        return to_pixels(self.labels, (across, down), self.placed.shift)


def _mosaic(parts: Sequence[Sample], size: int, augmentation: Augmentation, rng: np.random.Generator) -> Sample:
    """Four images around a random point of a canvas twice as large, looked at through a window of the asked size."""
    meeting = rng.uniform(size * 0.5, size * 1.5, size=2)
    tiles = []
    for place, (image, labels) in enumerate(parts):
        scale = size / max(image.shape[:2])
        wide, high = image.shape[1] * scale, image.shape[0] * scale
        left = meeting[0] - (wide if place % 2 == 0 else 0)
        top = meeting[1] - (high if place < _TILES // 2 else 0)
        tiles.append(_Tile(image, labels, Placed((scale, scale), (float(left), float(top)))))
    mapping = _mapping(2 * size, size, augmentation, rng)
    return _look(tiles, mapping, 2 * size, size, upright=augmentation.upright)


def _alone(part: Sample, size: int, augmentation: Augmentation, rng: np.random.Generator) -> Sample:
    image, labels = part
    scale = size / max(image.shape[:2])
    shift = ((size - image.shape[1] * scale) / 2, (size - image.shape[0] * scale) / 2)
    mapping = _mapping(size, size, augmentation, rng)
    return _look(
        [_Tile(image, labels, Placed((scale, scale), shift))], mapping, size, size, upright=augmentation.upright
    )


def _mapping(canvas: int, size: int, augmentation: Augmentation, rng: np.random.Generator) -> Matrix:
    """A random 3x3 mapping of the canvas onto the result: about its middle, then to about the result's middle."""
    middle = np.eye(3)
    middle[:2, 2] = -canvas / 2
    tilt = np.eye(3)
    tilt[2, :2] = rng.uniform(-augmentation.perspective, augmentation.perspective, size=2)
    angle = math.radians(rng.uniform(-augmentation.degrees, augmentation.degrees))
    factor = rng.uniform(1 - augmentation.scale, 1 + augmentation.scale)
    turn = np.eye(3)
    turn[:2, :2] = factor * np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    slant = np.eye(3)
    slant[0, 1], slant[1, 0] = np.tan(np.radians(rng.uniform(-augmentation.shear, augmentation.shear, size=2)))
    move = np.eye(3)
    move[:2, 2] = rng.uniform(0.5 - augmentation.translate, 0.5 + augmentation.translate, size=2) * size
    return move @ slant @ turn @ tilt @ middle


def _look(tiles: Sequence[_Tile], mapping: Matrix, canvas: int, size: int, *, upright: bool) -> Sample:
    """Draw the tiles as the mapping shows them, and keep the boxes that are left of theirs."""
    if upright:
        image = blank(size, size)
        tiles = [_drawn(tile, image, mapping, canvas) for tile in tiles]
    else:
        whole = blank(canvas, canvas)
        for tile in tiles:
            scale_into(whole, tile.image, tile.placed.scale, tile.placed.shift)
        image = warp(whole, mapping, (size, size))
    together = np.concatenate([tile.boxes() for tile in tiles])
    together[:, 1:] = together[:, 1:].clip(0, canvas)
    return image, _move(together, mapping, size)


def _drawn(tile: _Tile, image: Pixels, mapping: Matrix, canvas: int) -> _Tile:
    """Draw a tile as an upright mapping shows it; the tile as the canvas would hold it to look like that.

    What lies beyond the canvas is not drawn: the boxes there are cut off, too.
    """
    factor, move = float(mapping[0, 0]), [float(by) for by in mapping[:2, 2]]
    size = len(image)
    left, top = (min(max(round(by), 0), size) for by in move)
    right, bottom = (min(max(round(by + factor * canvas), 0), size) for by in move)
    across, down = (factor * shift + by for shift, by in zip(tile.placed.shift, move, strict=True))
    wide, high = (factor * scale for scale in tile.placed.scale)
    seen = scale_into(image[top:bottom, left:right], tile.image, (wide, high), (across - left, down - top))
    scale = seen.scale[0] / factor, seen.scale[1] / factor
    shift = (seen.shift[0] + left - move[0]) / factor, (seen.shift[1] + top - move[1]) / factor
    return replace(tile, placed=Placed(scale, shift))


def _move(boxes: Labels, mapping: Matrix, size: int) -> Labels:
    """Boxes through a mapping: those around their moved corners, cut at the frame; scraps are dropped."""
    corners = boxes[:, [1, 2, 3, 2, 3, 4, 1, 4]].reshape(-1, 4, 2).astype(np.float64)
    moved = np.concatenate((corners, np.ones((*corners.shape[:2], 1))), 2) @ mapping.T
    moved = moved[..., :2] / moved[..., 2:]
    whole = np.concatenate((moved.min(1), moved.max(1)), 1)
    cut = whole.clip(0, size)
    before = (whole[:, 2:] - whole[:, :2]).prod(1)
    sides = cut[:, 2:] - cut[:, :2]
    with np.errstate(divide="ignore", invalid="ignore"):
        thin = np.maximum(sides[:, 0] / sides[:, 1], sides[:, 1] / sides[:, 0])
    good = (sides > _SMALLEST).all(1) & (sides.prod(1) > _LEFT * before) & (thin < _THINNEST)
    result: Labels = boxes[good].copy()
    result[:, 1:] = cut[good]
    return result


def _mix(first: Sample, second: Sample, rng: np.random.Generator) -> Sample:
    share = float(rng.beta(_BLEND, _BLEND))
    image: Pixels = (first[0] * share + second[0] * (1 - share)).astype(np.uint8)
    return image, np.concatenate((first[1], second[1]))


def _colour(image: Pixels, augmentation: Augmentation, rng: np.random.Generator) -> Pixels:
    gains = (augmentation.hue, augmentation.saturation, augmentation.value)
    hue, saturation, value = (1 + float(rng.uniform(-1, 1)) * gain for gain in gains)
    return recolour(image, hue, saturation, value) if any(gains) else image


def _flip(image: Pixels, boxes: Labels, canvas: Pixels, augmentation: Augmentation, rng: np.random.Generator) -> Labels:
    """Put the image onto the canvas, turned over or not, and its boxes with it."""
    upside, across = (bool(one) for one in rng.random(2) < (augmentation.flip_vertical, augmentation.flip_horizontal))
    size = image.shape[0]
    if upside:
        boxes = boxes[:, [0, 1, 4, 3, 2]]
        boxes[:, [2, 4]] = size - boxes[:, [2, 4]]
    if across:
        boxes = boxes[:, [0, 3, 2, 1, 4]]
        boxes[:, [1, 3]] = size - boxes[:, [1, 3]]
    turn_over(image, canvas, upside=upside, across=across)
    return boxes
