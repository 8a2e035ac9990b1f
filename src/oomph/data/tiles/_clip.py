"""Boxes clipped to a window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..decoding import Window


def clip_boxes(
    boxes: NDArray[np.floating], window: Window, min_visible: float = 0.3
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Clip boxes to a window; return them in pixels of the window, and their numbers in `boxes`.

    Args:
        boxes: left, top, right, bottom in image pixels.
        window: the part of the image.
        min_visible: fraction of a box that must be inside the window; boxes with less are left out.
    """
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    low, high = np.array([window.left, window.top]), np.array([window.right, window.bottom])
    clipped = np.concatenate([np.clip(boxes[:, :2], low, high), np.clip(boxes[:, 2:], low, high)], 1)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    visible_area = np.prod(clipped[:, 2:] - clipped[:, :2], axis=1)
    kept = np.flatnonzero((visible_area > 0) & (visible_area >= min_visible * area))
    return clipped[kept] - np.tile(low, 2), kept
