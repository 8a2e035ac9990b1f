"""Images to look at: never more pixels than a picture needs, however large the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ...data import Header, Window, decode, decode_cost, decode_windows, fit_size
from ...units import MIB
from ..dataset._pixels import Pixels
from ..metrics._scores import ImageResult
from ._drawing import COLOURS, DrawnBox, draw_boxes, found_boxes, true_boxes

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
    side = next((one for one in _SIDES if decode_cost(header, fit_size(header.shown, (one, one))) <= _ROOM), _SIDES[-1])
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


def with_labels(path: str, header: Header, result: ImageResult, names: Sequence[str]) -> Pixels:
    """An image with its labels, and beside it with what was found; of a large one, the part around the surest box."""
    window = _part_of(header.shown, result.found)
    if window is None:
        pixels, left, top = decode(path, header.shown, header).pixels, 0, 0
    else:
        pixels, left, top = decode_windows(path, [window], header)[0].pixels, window.left, window.top
    pixels = np.ascontiguousarray(pixels)
    sides = [
        draw_boxes(pixels, [_moved(box, left, top) for box in boxes if _is_in(box, window)], names)
        for boxes in (true_boxes(result.truth), found_boxes(result.found))
    ]
    gap = np.full((pixels.shape[0], max(pixels.shape[1] // 80, 1), 3), 255, np.uint8)
    return np.concatenate((sides[0], gap, sides[1]), 1)


def _part_of(shown: tuple[int, int], found: NDArray[np.float32]) -> Window | None:
    """What is shown of an image of that size; None for all of it."""
    wide, tall = shown
    if max(shown) <= _FULL:
        return None
    middle = (wide / 2, tall / 2)
    if len(found):
        best = found[int(found[:, 4].argmax())]
        middle = (float(best[0] + best[2]) / 2, float(best[1] + best[3]) / 2)
    left = min(max(round(middle[0]) - _CLOSE // 2, 0), max(wide - _CLOSE, 0))
    top = min(max(round(middle[1]) - _CLOSE // 2, 0), max(tall - _CLOSE, 0))
    return Window(left, top, min(left + _CLOSE, wide), min(top + _CLOSE, tall))


def _is_in(box: DrawnBox, window: Window | None) -> bool:
    left, top, right, bottom = box.corners
    return window is None or (
        right > window.left and bottom > window.top and left < window.right and top < window.bottom
    )


def _moved(box: DrawnBox, left: int, top: int) -> DrawnBox:
    return replace(
        box, corners=(box.corners[0] - left, box.corners[1] - top, box.corners[2] - left, box.corners[3] - top)
    )
