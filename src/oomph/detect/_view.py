"""Images to look at: never more pixels than a picture needs, however large the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ..data import Header, Window, cost, decode, decode_windows, fitted
from ..units import MIB
from ._pictures import COLOURS, DrawnBox, draw_boxes, found_boxes
from ._pixels import Pixels

_FULL = 4096  # pixels a side up to which an image is drawn as large as it is
_SIDES = (2560, 2048, 1536, 1024, 640)  # of the picture of a larger one
_ROOM = 256 * MIB  # bytes that decoding for a picture may take
_LEAST = 4.0  # pixels a side of a box that can be seen
_CLOSE = 640


def found_picture(path: str, header: Header, found: NDArray[np.float32], names: Sequence[str]) -> Pixels:
    """An image with boxes and names, or a large one made smaller, with boxes in the colours of their classes alone."""
    if max(header.shown) <= _FULL:
        whole = np.ascontiguousarray(decode(path, header.shown, header).pixels)
        return draw_boxes(whole, found_boxes(found), names)
    side = next((one for one in _SIDES if cost(header, fitted(header.shown, (one, one))) <= _ROOM), _SIDES[-1])
    pixels = np.ascontiguousarray(decode(path, (side, side), header).pixels)
    scale = pixels.shape[1] / header.shown[0], pixels.shape[0] / header.shown[1]
    return _mark(pixels, found_boxes(found), scale)


def _mark(pixels: Pixels, boxes: Sequence[DrawnBox], scale: tuple[float, float]) -> Pixels:
    """Boxes without words, none so small that it can't be seen."""
    picture = Image.fromarray(pixels)
    drawing = ImageDraw.Draw(picture)
    for box in boxes:
        left, top, right, bottom = (value * scale[axis % 2] for axis, value in enumerate(box.corners))
        across, down = max(_LEAST - (right - left), 0) / 2, max(_LEAST - (bottom - top), 0) / 2
        corners = (left - across, top - down, right + across, bottom + down)
        drawing.rectangle(corners, outline=COLOURS[box.label % len(COLOURS)])
    return np.asarray(picture)


def close_up(path: str, header: Header, found: NDArray[np.float32], names: Sequence[str]) -> Pixels:
    """An image with boxes and names; of a large one, the part around the surest of them."""
    wide, tall = header.shown
    if max(header.shown) <= _FULL:
        return found_picture(path, header, found, names)
    middle = (wide / 2, tall / 2)
    if len(found):
        best = found[int(found[:, 4].argmax())]
        middle = (float(best[0] + best[2]) / 2, float(best[1] + best[3]) / 2)
    left = min(max(round(middle[0]) - _CLOSE // 2, 0), max(wide - _CLOSE, 0))
    top = min(max(round(middle[1]) - _CLOSE // 2, 0), max(tall - _CLOSE, 0))
    window = Window(left, top, min(left + _CLOSE, wide), min(top + _CLOSE, tall))
    pixels = np.ascontiguousarray(decode_windows(path, [window], header)[0].pixels)
    rows = found.copy()
    rows[:, [0, 2]] -= left
    rows[:, [1, 3]] -= top
    inside = (rows[:, 2] > 0) & (rows[:, 3] > 0) & (rows[:, 0] < _CLOSE) & (rows[:, 1] < _CLOSE)
    return draw_boxes(pixels, found_boxes(rows[inside]), names)
