"""Training samples: mosaics of four images, moved, scaled, recolored and flipped.

A sample is a pure function of seed, epoch and index, in any process and any order. That lets a run resume in the middle
of an epoch bit for bit. Images that are only moved and scaled (the default) are drawn into the sample in one step; the
full mosaic canvas is built only for rotation, shear and perspective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ._pixels import Matrix, Pixels, ScaleShift, adjust_hsv, flip_into, gray_canvas, scale_into, warp

BoxRows = NDArray[np.float32]  # (n, 5): class, x, y, w, h as fractions
Sample = tuple[Pixels, BoxRows]

_MOSAIC_IMAGES = 4
_MIN_BOX_PIXELS = 2.0
_MIN_VISIBLE_FRACTION = 0.1  # of a box's area, after clipping
_MAX_BOX_ASPECT = 100.0
_MIXUP_BETA = 32.0


@dataclass(frozen=True)
class Augmentation:
    """Strength of the augmentations under YOLOv5's names; the defaults are its low ones, zero disables each.

    Attributes:
        mosaic: fraction of samples made of four images.
        mixup: fraction of mosaics that are blended with a second one.
        hsv_h, hsv_s, hsv_v: maximum relative change of hue, saturation and value.
        degrees, shear: maximum rotation and shear in degrees.
        translate: maximum shift as a fraction of the side.
        scale: maximum relative change of size.
        perspective: maximum perspective distortion, 0 to 0.001.
        flipud, fliplr: probabilities of an up-down and a left-right flip.
    """

    mosaic: float = 1.0
    mixup: float = 0.0
    hsv_h: float = 0.015
    hsv_s: float = 0.7
    hsv_v: float = 0.4
    degrees: float = 0.0
    shear: float = 0.0
    translate: float = 0.1
    scale: float = 0.5
    perspective: float = 0.0
    flipud: float = 0.0
    fliplr: float = 0.5

    @property
    def is_axis_aligned(self) -> bool:
        """True if images are only moved and scaled."""
        return not (self.degrees or self.shear or self.perspective)


class LabeledImages(Protocol):
    """Images with boxes that samples are built from."""

    def __len__(self) -> int:
        """Return the number of images."""
        ...

    def image(self, index: int) -> Pixels:
        """Return the pixels of an image, at any resolution."""
        ...

    def labels(self, index: int) -> BoxRows:
        """Return the boxes of an image, as fractions of it."""
        ...


def choose_images(index: int, count: int, augmentation: Augmentation, rng: np.random.Generator) -> tuple[int, ...]:
    """Choose the images of a sample: the image alone, four for a mosaic, or eight for two blended mosaics."""
    if rng.random() >= augmentation.mosaic:
        return (index,)
    mosaics = 2 if rng.random() < augmentation.mixup else 1
    chosen: list[int] = []
    for first in (index, int(rng.integers(count)))[:mosaics]:
        four = np.array([first, *rng.integers(count, size=_MOSAIC_IMAGES - 1)])
        rng.shuffle(four)
        chosen += [int(number) for number in four]
    return tuple(chosen)


def compose_sample(
    images: Sequence[Sample], canvas: Pixels, augmentation: Augmentation, rng: np.random.Generator
) -> BoxRows:
    """Draw the chosen images onto a square canvas; every pixel of it is written.

    Args:
        images: pixels, at any resolution, and boxes of the images from `choose_images`, in its order.
        canvas: the canvas to draw on.
        augmentation: strength of the augmentations.
        rng: the generator that `choose_images` drew from.

    Returns:
        The visible boxes, as fractions of the canvas.
    """
    size = canvas.shape[0]
    if len(images) < _MOSAIC_IMAGES:
        pixels, boxes = _single(images[0], size, augmentation, rng)
    else:
        pixels, boxes = _mosaic(images[:_MOSAIC_IMAGES], size, augmentation, rng)
        if len(images) > _MOSAIC_IMAGES:
            pixels, boxes = _mixup((pixels, boxes), _mosaic(images[_MOSAIC_IMAGES:], size, augmentation, rng), rng)
    pixels = _jitter_color(pixels, augmentation, rng)
    return pixels_to_fractions(_random_flip(pixels, boxes, canvas, augmentation, rng), size)


def build_sample(
    source: LabeledImages, index: int, size: int, augmentation: Augmentation, key: Sequence[int]
) -> Sample:
    """Build one training sample: pixels (size, size, 3) and boxes as fractions.

    Args:
        source: images and labels.
        index: the sample's main image.
        size: side of the result.
        augmentation: strength of the augmentations.
        key: random seed of the sample, such as (seed, epoch, index).
    """
    rng = np.random.default_rng(key)
    chosen = choose_images(index, len(source), augmentation, rng)
    canvas = np.empty((size, size, 3), dtype=np.uint8)
    images = [(source.image(number), source.labels(number)) for number in chosen]
    return canvas, compose_sample(images, canvas, augmentation, rng)


def fractions_to_pixels(labels: BoxRows, scale: tuple[float, float], shift: tuple[float, float]) -> BoxRows:
    """Convert fractions (n, 5) to class and corners in pixels: x becomes `scale * x + shift`."""
    boxes = labels.copy()
    for axis in (0, 1):
        center, half = labels[:, 1 + axis], labels[:, 3 + axis] / 2
        boxes[:, 1 + axis] = (center - half) * scale[axis] + shift[axis]
        boxes[:, 3 + axis] = (center + half) * scale[axis] + shift[axis]
    return boxes


def pixels_to_fractions(boxes: BoxRows, size: int) -> BoxRows:
    """Convert class and corners in pixels of a square to fractions of it."""
    labels = boxes.copy()
    labels[:, 1:3] = (boxes[:, 1:3] + boxes[:, 3:5]) / 2 / size
    labels[:, 3:5] = (boxes[:, 3:5] - boxes[:, 1:3]) / size
    return labels


@dataclass(frozen=True)
class _PlacedImage:
    """An image and its position on the canvas."""

    pixels: Pixels
    labels: BoxRows
    placement: ScaleShift

    def boxes(self) -> BoxRows:
        """Return its boxes in pixels of the canvas."""
        sides = self.pixels.shape[1::-1]
        width, height = (scale * side for scale, side in zip(self.placement.scale, sides, strict=True))
        return fractions_to_pixels(self.labels, (width, height), self.placement.shift)


def _mosaic(images: Sequence[Sample], size: int, augmentation: Augmentation, rng: np.random.Generator) -> Sample:
    """Place four images around a random point of a canvas of twice the size, and transform it to the given size."""
    center = rng.uniform(size * 0.5, size * 1.5, size=2)
    placed = []
    for corner, (pixels, labels) in enumerate(images):
        scale = size / max(pixels.shape[:2])
        width, height = pixels.shape[1] * scale, pixels.shape[0] * scale
        left = center[0] - (width if corner % 2 == 0 else 0)
        top = center[1] - (height if corner < _MOSAIC_IMAGES // 2 else 0)
        placed.append(_PlacedImage(pixels, labels, ScaleShift((scale, scale), (float(left), float(top)))))
    matrix = _random_transform(2 * size, size, augmentation, rng)
    return _render(placed, matrix, 2 * size, size, axis_aligned=augmentation.is_axis_aligned)


def _single(image: Sample, size: int, augmentation: Augmentation, rng: np.random.Generator) -> Sample:
    pixels, labels = image
    scale = size / max(pixels.shape[:2])
    shift = ((size - pixels.shape[1] * scale) / 2, (size - pixels.shape[0] * scale) / 2)
    matrix = _random_transform(size, size, augmentation, rng)
    placed = _PlacedImage(pixels, labels, ScaleShift((scale, scale), shift))
    return _render([placed], matrix, size, size, axis_aligned=augmentation.is_axis_aligned)


def _random_transform(canvas: int, size: int, augmentation: Augmentation, rng: np.random.Generator) -> Matrix:
    """Return a random 3x3 matrix that maps the canvas, around its center, to about the center of the result."""
    center = np.eye(3)
    center[:2, 2] = -canvas / 2
    perspective = np.eye(3)
    perspective[2, :2] = rng.uniform(-augmentation.perspective, augmentation.perspective, size=2)
    angle = math.radians(rng.uniform(-augmentation.degrees, augmentation.degrees))
    factor = rng.uniform(1 - augmentation.scale, 1 + augmentation.scale)
    rotation = np.eye(3)
    rotation[:2, :2] = factor * np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    shear = np.eye(3)
    shear[0, 1], shear[1, 0] = np.tan(np.radians(rng.uniform(-augmentation.shear, augmentation.shear, size=2)))
    translation = np.eye(3)
    translation[:2, 2] = rng.uniform(0.5 - augmentation.translate, 0.5 + augmentation.translate, size=2) * size
    return translation @ shear @ rotation @ perspective @ center


def _render(images: Sequence[_PlacedImage], matrix: Matrix, canvas: int, size: int, *, axis_aligned: bool) -> Sample:
    """Draw the placed images through the matrix, and return the boxes that are still visible."""
    if axis_aligned:
        pixels = gray_canvas(size, size)
        images = [_draw_axis_aligned(image, pixels, matrix, canvas) for image in images]
    else:
        full = gray_canvas(canvas, canvas)
        for image in images:
            scale_into(full, image.pixels, image.placement.scale, image.placement.shift)
        pixels = warp(full, matrix, (size, size))
    boxes = np.concatenate([image.boxes() for image in images])
    boxes[:, 1:] = boxes[:, 1:].clip(0, canvas)
    return pixels, _transform_boxes(boxes, matrix, size)


def _draw_axis_aligned(image: _PlacedImage, pixels: Pixels, matrix: Matrix, canvas: int) -> _PlacedImage:
    """Draw an image through a matrix without rotation; return it with the placement that it really got.

    The part beyond the canvas isn't drawn, since boxes are clipped there as well.
    """
    factor, move = float(matrix[0, 0]), [float(value) for value in matrix[:2, 2]]
    size = len(pixels)
    left, top = (min(max(round(value), 0), size) for value in move)
    right, bottom = (min(max(round(value + factor * canvas), 0), size) for value in move)
    x, y = (factor * shift + value for shift, value in zip(image.placement.shift, move, strict=True))
    wide, high = (factor * scale for scale in image.placement.scale)
    drawn = scale_into(pixels[top:bottom, left:right], image.pixels, (wide, high), (x - left, y - top))
    scale = drawn.scale[0] / factor, drawn.scale[1] / factor
    shift = (drawn.shift[0] + left - move[0]) / factor, (drawn.shift[1] + top - move[1]) / factor
    return replace(image, placement=ScaleShift(scale, shift))


def _transform_boxes(boxes: BoxRows, matrix: Matrix, size: int) -> BoxRows:
    """Map boxes to the bounds of their transformed corners, clip them, and drop those of which too little is left."""
    corners = boxes[:, [1, 2, 3, 2, 3, 4, 1, 4]].reshape(-1, 4, 2).astype(np.float64)
    moved = np.concatenate((corners, np.ones((*corners.shape[:2], 1))), 2) @ matrix.T
    moved = moved[..., :2] / moved[..., 2:]
    full = np.concatenate((moved.min(1), moved.max(1)), 1)
    clipped = full.clip(0, size)
    full_area = (full[:, 2:] - full[:, :2]).prod(1)
    sides = clipped[:, 2:] - clipped[:, :2]
    with np.errstate(divide="ignore", invalid="ignore"):
        aspect = np.maximum(sides[:, 0] / sides[:, 1], sides[:, 1] / sides[:, 0])
    visible = sides.prod(1) > _MIN_VISIBLE_FRACTION * full_area
    keep = (sides > _MIN_BOX_PIXELS).all(1) & visible & (aspect < _MAX_BOX_ASPECT)
    result: BoxRows = boxes[keep].copy()
    result[:, 1:] = clipped[keep]
    return result


def _mixup(first: Sample, second: Sample, rng: np.random.Generator) -> Sample:
    ratio = float(rng.beta(_MIXUP_BETA, _MIXUP_BETA))
    pixels: Pixels = (first[0] * ratio + second[0] * (1 - ratio)).astype(np.uint8)
    return pixels, np.concatenate((first[1], second[1]))


def _jitter_color(pixels: Pixels, augmentation: Augmentation, rng: np.random.Generator) -> Pixels:
    gains = (augmentation.hsv_h, augmentation.hsv_s, augmentation.hsv_v)
    hue, saturation, value = (1 + float(rng.uniform(-1, 1)) * gain for gain in gains)
    return adjust_hsv(pixels, hue, saturation, value) if any(gains) else pixels


def _random_flip(
    pixels: Pixels, boxes: BoxRows, canvas: Pixels, augmentation: Augmentation, rng: np.random.Generator
) -> BoxRows:
    """Copy the pixels onto the canvas, flipped or not, and return the boxes to match."""
    flipud, fliplr = (bool(flip) for flip in rng.random(2) < (augmentation.flipud, augmentation.fliplr))
    size = pixels.shape[0]
    if flipud:
        boxes = boxes[:, [0, 1, 4, 3, 2]]
        boxes[:, [2, 4]] = size - boxes[:, [2, 4]]
    if fliplr:
        boxes = boxes[:, [0, 3, 2, 1, 4]]
        boxes[:, [1, 3]] = size - boxes[:, [1, 3]]
    flip_into(pixels, canvas, flipud=flipud, fliplr=fliplr)
    return boxes
