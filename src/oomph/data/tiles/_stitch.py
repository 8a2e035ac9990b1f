"""What was found in windows, put together to boxes of the whole image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..decoding import Letterbox

_EDGE = 2.0  # pixels of the image from a window's border at which a box counts as cut
_INSIDE = 0.7  # share of the smaller box of two windows that makes them one


class Found(NamedTuple):
    """Detections: boxes (left, top, right, bottom), how sure, and of which class."""

    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    classes: NDArray[np.int64]


def stitch(tiles: Sequence[tuple[Letterbox, Found]], size: tuple[int, int], same: float = 0.5) -> Found:
    """Detections of windows as detections of their image, each object once.

    Boxes of two windows are one object when they overlap by `same` (intersection over union), or when most of the
    smaller one lies in the other, as a part does that a border cut off. Whole ones win over cut ones, then the surer.
    Boxes of one window are never merged: that is the detector's own business.

    Args:
        tiles: where each window lies, and what was found on its canvas.
        size: width and height of the image.
        same: overlap that makes two boxes one.
    """
    if not tiles:
        return Found(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    boxes = np.concatenate([spot.to_image(found.boxes) for spot, found in tiles])
    scores = np.concatenate([np.asarray(found.scores, np.float64) for _, found in tiles])
    classes = np.concatenate([np.asarray(found.classes, np.int64) for _, found in tiles])
    owner = np.concatenate([np.full(len(found.boxes), number) for number, (_, found) in enumerate(tiles)])
    cut = np.concatenate([_cut(spot, spot.to_image(found.boxes), size) for spot, found in tiles])
    np.clip(boxes, 0, np.tile(size, 2), out=boxes)
    kept = _unique(boxes, np.lexsort((-scores, cut)), (classes, owner), same)
    kept = kept[np.argsort(-scores[kept], kind="stable")]
    return Found(boxes[kept], scores[kept], classes[kept])


def _cut(spot: Letterbox, boxes: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Boxes that touch a border of their window which is none of the image."""
    window, (wide, tall) = spot.window, size
    near = [
        (boxes[:, 0] <= window.left + _EDGE) & (window.left > 0),
        (boxes[:, 1] <= window.top + _EDGE) & (window.top > 0),
        (boxes[:, 2] >= window.right - _EDGE) & (window.right < wide),
        (boxes[:, 3] >= window.bottom - _EDGE) & (window.bottom < tall),
    ]
    return np.asarray(np.any(near, axis=0))


def _unique(
    boxes: NDArray[np.float64],
    order: NDArray[np.int64],
    kinds: tuple[NDArray[np.int64], NDArray[np.int64]],
    same: float,
) -> NDArray[np.int64]:
    """Go through boxes in an order and keep those that no kept one stands for."""
    classes, owner = kinds
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    left = order
    kept = []
    while len(left):
        first, left = left[0], left[1:]
        kept.append(first)
        low = np.maximum(boxes[first, :2], boxes[left, :2])
        high = np.minimum(boxes[first, 2:], boxes[left, 2:])
        shared = np.prod(np.clip(high - low, 0, None), axis=1)
        union = shared / np.maximum(areas[first] + areas[left] - shared, 1e-9)
        inside = shared / np.maximum(np.minimum(areas[first], areas[left]), 1e-9)
        double = ((union >= same) | (inside >= _INSIDE)) & (classes[left] == classes[first])
        left = left[~(double & (owner[left] != owner[first]))]
    return np.array(kept, np.int64)
