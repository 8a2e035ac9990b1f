"""An image fitted into a frame of another shape, and frames that waste little on borders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ._pixels import Pixels, blank, scale_into

_STRIDE = 32
_SPARE = 0.5  # half a stride of grey, which helps objects at the edge


@dataclass(frozen=True)
class Fit:
    """How an image lies in its frame.

    Attributes:
        ratio: pixels of the frame a pixel of the image.
        pad: left and top border in pixels of the frame.
        original: height and width of the image.
    """

    ratio: float
    pad: tuple[float, float]
    original: tuple[int, int]


def letterbox(
    image: Pixels, frame: tuple[int, int], original: tuple[int, int] | None = None, *, enlarge: bool = True
) -> tuple[Pixels, Fit]:
    """Fit an image into a frame (height, width), in the middle, on grey.

    Args:
        image: the pixels, perhaps already decoded smaller.
        frame: height and width of the result.
        original: height and width of the file, which the Fit speaks of; those of `image` if None.
        enlarge: whether a small image may grow.
    """
    high, wide = original or image.shape[:2]
    ratio = min(frame[0] / high, frame[1] / wide)
    if not enlarge:
        ratio = min(ratio, 1.0)
    pad = ((frame[1] - round(wide * ratio)) // 2, (frame[0] - round(high * ratio)) // 2)
    canvas = blank(*frame)
    scale = (wide * ratio / image.shape[1], high * ratio / image.shape[0])
    scale_into(canvas, image, scale, (float(pad[0]), float(pad[1])))
    return canvas, Fit(ratio, (float(pad[0]), float(pad[1])), (high, wide))


@dataclass(frozen=True)
class Frame:
    """Images that are validated together: their indices, and height and width of the frame they share."""

    indices: tuple[int, ...]
    size: tuple[int, int]


def frames(shapes: Sequence[tuple[int, int]], size: int, batch: int) -> list[Frame]:
    """Order images (height, width) by aspect, so that each batch shares a frame with little border.

    The longer side of a frame is about `size`; both sides are multiples of 32.
    """
    if not shapes:
        return []
    aspects = np.array([high / wide for high, wide in shapes])
    order = np.argsort(aspects, kind="stable")
    found = []
    for begin in range(0, len(order), batch):
        these = order[begin : begin + batch]
        low, high = aspects[these[0]], aspects[these[-1]]
        # The frame must hold its highest and its widest image.
        tall, broad = min(high, 1.0), min(1 / low, 1.0)
        sides = tuple(math.ceil(side * size / _STRIDE + _SPARE) * _STRIDE for side in (tall, broad))
        found.append(Frame(tuple(int(index) for index in these), (sides[0], sides[1])))
    return found
