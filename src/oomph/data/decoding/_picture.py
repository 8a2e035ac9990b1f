"""Decoded pixels and the part of the image that they show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._geometry import Window


@dataclass(frozen=True, eq=False)
class Picture:
    """Decoded pixels of an image or of a window of it.

    Attributes:
        pixels: uint8 array (rows, columns, 3) that owns its memory.
        width: width of the whole image after EXIF rotation.
        height: height of the whole image after EXIF rotation.
        window: the part of the image that the pixels show.
    """

    pixels: NDArray[np.uint8]
    width: int
    height: int
    window: Window
