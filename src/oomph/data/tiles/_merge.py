"""Merging of detections in windows to detections in the whole image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..decoding import Letterbox

_EDGE_PIXELS = 2.0  # a box closer than this to the border of its window counts as cut
_CONTAINED_FRACTION = 0.7  # of the smaller box of a pair that makes both the same object


class Detections(NamedTuple):
    """Detected boxes (left, top, right, bottom), their scores and their classes."""

    boxes: NDArray[np.float64]
    scores: NDArray[np.float64]
    classes: NDArray[np.int64]


def merge_tiles(
    tiles: Sequence[tuple[Letterbox, Detections]],
    size: tuple[int, int],
    iou: float = 0.5,
    *,
    across_classes: bool = False,
) -> Detections:
    """Merge the detections of windows into detections of their image, each object once.

    Boxes of two windows are the same object if their IoU is at least `iou`, or if most of the smaller box is inside
    the other, as for an object that the border of a window cuts. Whole boxes win over cut ones, then the higher score
    wins. Boxes of the same window are never merged: that is the job of the detector's NMS.

    Args:
        tiles: placement of each window, and the detections on its canvas.
        size: width and height of the image.
        iou: overlap of two boxes of the same object.
        across_classes: also merge boxes of different classes.
    """
    if not tiles:
        return Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64))
    tile_boxes = [np.clip(letterbox.to_image(detections.boxes), 0, np.tile(size, 2)) for letterbox, detections in tiles]
    boxes = np.concatenate(tile_boxes)
    scores = np.concatenate([np.asarray(detections.scores, np.float64) for _, detections in tiles])
    classes = np.concatenate([np.asarray(detections.classes, np.int64) for _, detections in tiles])
    cut = np.concatenate([_touches_border(tile[0], part, size) for tile, part in zip(tiles, tile_boxes, strict=True)])
    pairs = _duplicate_pairs(tile_boxes, np.zeros_like(classes) if across_classes else classes, iou)
    kept = _drop_duplicates(np.lexsort((-scores, cut)), pairs)
    kept = kept[np.argsort(-scores[kept], kind="stable")]
    return Detections(boxes[kept], scores[kept], classes[kept])


def _touches_border(letterbox: Letterbox, boxes: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Mark boxes that touch a border of their window which is not a border of the image."""
    window, (width, height) = letterbox.window, size
    touching = [
        (boxes[:, 0] <= window.left + _EDGE_PIXELS) & (window.left > 0),
        (boxes[:, 1] <= window.top + _EDGE_PIXELS) & (window.top > 0),
        (boxes[:, 2] >= window.right - _EDGE_PIXELS) & (window.right < width),
        (boxes[:, 3] >= window.bottom - _EDGE_PIXELS) & (window.bottom < height),
    ]
    return np.asarray(np.any(touching, axis=0))


def _duplicate_pairs(
    tile_boxes: Sequence[NDArray[np.float64]], classes: NDArray[np.int64], iou: float
) -> NDArray[np.int64]:
    """Return pairs of boxes of two windows that show the same object; distant windows are not compared."""
    starts = np.cumsum([0, *(len(boxes) for boxes in tile_boxes)])
    pairs = [np.zeros((0, 2), np.int64)]
    occupied = [number for number, boxes in enumerate(tile_boxes) if len(boxes)]
    low = np.array([tile_boxes[number][:, :2].min(0) for number in occupied]).reshape(-1, 2)
    high = np.array([tile_boxes[number][:, 2:].max(0) for number in occupied]).reshape(-1, 2)
    for position, first in enumerate(occupied):
        overlaps = ((low[position + 1 :] < high[position]) & (high[position + 1 :] > low[position])).all(1)
        for other in np.flatnonzero(overlaps) + position + 1:
            second = occupied[other]
            rows, columns = np.nonzero(_same_object(tile_boxes[first], tile_boxes[second], iou))
            pairs.append(np.stack((rows + starts[first], columns + starts[second]), 1))
    joined = np.concatenate(pairs)
    return np.asarray(joined[classes[joined[:, 0]] == classes[joined[:, 1]]])


def _same_object(first: NDArray[np.float64], second: NDArray[np.float64], iou: float) -> NDArray[np.bool_]:
    """Return a matrix that marks pairs of boxes with enough overlap to be the same object."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    intersection = np.prod(np.clip(high - low, 0, None), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None] - intersection
    smaller = np.minimum(areas[0][:, None], areas[1][None])
    contained = intersection >= _CONTAINED_FRACTION * smaller
    return np.asarray((intersection > 0) & ((intersection >= iou * union) | contained))


def _drop_duplicates(order: NDArray[np.int64], pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Visit boxes in `order` and keep those that are not duplicates of a kept one."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    # Each pair as (earlier, later), grouped by the earlier box.
    ranks = np.sort(rank[pairs], axis=1)
    ranks = ranks[np.argsort(ranks[:, 0], kind="stable")]
    kept = np.ones(len(order), np.bool_)
    earlier, begins = np.unique(ranks[:, 0], return_index=True)
    bounds = np.append(begins, len(ranks))
    for number, box in enumerate(earlier):
        if kept[box]:
            kept[ranks[bounds[number] : bounds[number + 1], 1]] = False
    return order[kept]
