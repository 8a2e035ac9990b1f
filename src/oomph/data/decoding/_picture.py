"""Decoded pixels, and what they show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._geometry import Letterbox, Window


@dataclass(frozen=True, eq=False)
class Picture:
    """Decoded pixels of an image or a window of it.

    Attributes:
        pixels: rows, columns and three bands of bytes, in memory of their own.
        width: of the whole image as it is seen.
        height: of the whole image as it is seen.
        window: the part that the pixels show.
    """

    pixels: NDArray[np.uint8]
    width: int
    height: int
    window: Window

    @property
    def placed(self) -> Letterbox:
        """How the pixels lie to the image, with nothing around them."""
        tall, wide = self.pixels.shape[:2]
        return Letterbox(self.window, (wide, tall))
