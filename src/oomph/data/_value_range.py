"""Pixels as the floats that a model was trained on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_WHITE = 255


def to_value_range(images: NDArray[np.uint8], value_range: tuple[float, float]) -> NDArray[np.float32]:
    """Return pixels as float32, with black and white at the ends of a range such as (0, 1) or (-1, 1)."""
    low, high = value_range
    scaled = images.astype(np.float32)
    if (low, high) != (0, _WHITE):
        scaled *= np.float32((high - low) / _WHITE)
        scaled += np.float32(low)
    return scaled
