"""Frames for validation that waste little on borders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_STRIDE = 32
_SPARE = 0.5  # half a stride of grey around the longer side, which helps objects at the edge


@dataclass(frozen=True)
class Frame:
    """Images that are validated together: their indices, and height and width of the frame they share."""

    indices: tuple[int, ...]
    size: tuple[int, int]


def frames(shapes: Sequence[tuple[int, int]], size: int, batch: int) -> list[Frame]:
    """Order images (height, width) by aspect, so that each batch shares a frame with little border.

    The longer side of every image is to be `size`; the frame is somewhat larger, by grey, and its sides are multiples
    of 32.
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
