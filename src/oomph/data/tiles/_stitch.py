"""What was found in windows, put together to boxes of the whole image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..decoding import Letterbox

_EDGE = 2.0  # pixels of the image from a window's border at which a box counts as cut
_INSIDE = 0.7  # share of the smaller box of two windows that makes them one


class Detections(NamedTuple):
    """Detections: boxes (left, top, right, bottom), how sure, and of which class."""

    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    classes: NDArray[np.int64]


def merge_tiles(
    tiles: Sequence[tuple[Letterbox, Detections]],
    size: tuple[int, int],
    same: float = 0.5,
    *,
    across_classes: bool = False,
) -> Detections:
    """Detections of windows as detections of their image, each object once.

    Boxes of two windows are one object when they overlap by `same` (intersection over union), or when most of the
    smaller one lies in the other, as a part does that a border cut off. Whole ones win over cut ones, then the surer.
    Boxes of one window are never merged: that is the detector's own business.

    Args:
        tiles: where each window lies, and what was found on its canvas.
        size: width and height of the image.
        same: overlap that makes two boxes one.
        across_classes: whether boxes of different classes may be one object too.
    """
    if not tiles:
        return Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    parts = [np.clip(spot.to_image(found.boxes), 0, np.tile(size, 2)) for spot, found in tiles]
    boxes = np.concatenate(parts)
    scores = np.concatenate([np.asarray(found.scores, np.float64) for _, found in tiles])
    classes = np.concatenate([np.asarray(found.classes, np.int64) for _, found in tiles])
    cut = np.concatenate([_cut(spot, own, size) for (spot, _), own in zip(tiles, parts, strict=True)])
    pairs = _doubles(parts, np.zeros_like(classes) if across_classes else classes, same)
    kept = _unique(np.lexsort((-scores, cut)), pairs)
    kept = kept[np.argsort(-scores[kept], kind="stable")]
    return Detections(boxes[kept], scores[kept], classes[kept])


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


def _doubles(parts: Sequence[NDArray[np.float64]], classes: NDArray[np.int64], same: float) -> NDArray[np.int64]:
    """Pairs of boxes, by their numbers, that are one object seen in two windows; windows far apart aren't compared."""
    starts = np.cumsum([0, *(len(own) for own in parts)])
    found = [np.zeros((0, 2), np.int64)]
    there = [number for number, own in enumerate(parts) if len(own)]
    low = np.array([parts[number][:, :2].min(0) for number in there]).reshape(-1, 2)
    high = np.array([parts[number][:, 2:].max(0) for number in there]).reshape(-1, 2)
    for at, number in enumerate(there):
        near = ((low[at + 1 :] < high[at]) & (high[at + 1 :] > low[at])).all(1)
        for other in np.flatnonzero(near) + at + 1:
            second = there[other]
            rows, columns = np.nonzero(_alike(parts[number], parts[second], same))
            found.append(np.stack((rows + starts[number], columns + starts[second]), 1))
    pairs = np.concatenate(found)
    return np.asarray(pairs[classes[pairs[:, 0]] == classes[pairs[:, 1]]])


def _alike(first: NDArray[np.float64], second: NDArray[np.float64], same: float) -> NDArray[np.bool_]:
    """Which boxes of one window overlap which of another so much that they are one."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None] - shared
    smaller = np.minimum(areas[0][:, None], areas[1][None])
    return np.asarray((shared > 0) & ((shared >= same * union) | (shared >= _INSIDE * smaller)))


def _unique(order: NDArray[np.int64], pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Go through boxes in an order and keep those that no kept one stands for."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    # Each pair as (earlier, later), the pairs of one earlier box side by side.
    places = np.sort(place[pairs], axis=1)
    places = places[np.argsort(places[:, 0], kind="stable")]
    stays = np.ones(len(order), np.bool_)
    firsts, begins = np.unique(places[:, 0], return_index=True)
    bounds = np.append(begins, len(places))
    for number, first in enumerate(firsts):
        if stays[first]:
            stays[places[bounds[number] : bounds[number + 1], 1]] = False
    return order[stays]
