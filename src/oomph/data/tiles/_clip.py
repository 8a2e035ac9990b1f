"""Labels of a window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..decoding import Window


def clip_boxes(
    boxes: NDArray[np.floating], window: Window, visible: float = 0.3
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Boxes as a window shows them, in its own pixels, and which they were.

    Args:
        boxes: left, top, right, bottom in pixels of the image.
        window: the part that is shown.
        visible: the share of a box that must be inside for its object to count; below, it is left out.
    """
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    low, high = np.array([window.left, window.top]), np.array([window.right, window.bottom])
    corners = np.concatenate([np.clip(boxes[:, :2], low, high), np.clip(boxes[:, 2:], low, high)], 1)
    whole = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    inside = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    kept = np.flatnonzero((inside > 0) & (inside >= visible * whole))
    return corners[kept] - np.tile(low, 2), kept
