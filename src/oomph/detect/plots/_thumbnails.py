"""Images with boxes, decoded with no more pixels than the result needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ...charts import COLORS
from ...data import Header, Window, decode, decode_cost, decode_windows, fit_size
from ...units import MIB
from ..dataset import Pixels
from ..metrics import ImageResult
from ._drawing import DrawnBox, draw_boxes, prediction_boxes, truth_boxes

_MAX_FULL_SIDE = 4096  # images up to this side are drawn at full size
_DOWNSCALED_SIDES = (2560, 2048, 1536, 1024, 640)
_MAX_DECODE_BYTES = 256 * MIB
_MIN_BOX_PIXELS = 4.0
_CROP_SIDE = 640


def detection_image(path: str, header: Header, predictions: NDArray[np.float32], names: Sequence[str]) -> Pixels:
    """Draw an image with boxes and class names; a large one is downscaled, with boxes but without names."""
    boxes = prediction_boxes(predictions)
    if max(header.display_size) <= _MAX_FULL_SIDE:
        return draw_boxes(np.ascontiguousarray(decode(path, header.display_size, header).pixels), boxes, names)
    sides = (
        side
        for side in _DOWNSCALED_SIDES
        if decode_cost(header, fit_size(header.display_size, (side, side))) <= _MAX_DECODE_BYTES
    )
    side = next(sides, _DOWNSCALED_SIDES[-1])
    pixels = np.ascontiguousarray(decode(path, (side, side), header).pixels)
    scale = pixels.shape[1] / header.display_size[0], pixels.shape[0] / header.display_size[1]
    return _draw_unnamed(pixels, boxes, scale)


def _draw_unnamed(pixels: Pixels, boxes: Sequence[DrawnBox], scale: tuple[float, float]) -> Pixels:
    """Draw boxes without names, none too small to be seen."""
    canvas = Image.fromarray(pixels)
    drawing = ImageDraw.Draw(canvas)
    for box in boxes:
        left, top, right, bottom = (value * scale[axis % 2] for axis, value in enumerate(box.corners))
        pad_x, pad_y = max(_MIN_BOX_PIXELS - (right - left), 0) / 2, max(_MIN_BOX_PIXELS - (bottom - top), 0) / 2
        corners = (left - pad_x, top - pad_y, right + pad_x, bottom + pad_y)
        drawing.rectangle(corners, outline=COLORS[box.label % len(COLORS)])
    return np.asarray(canvas)


def labels_and_predictions(path: str, header: Header, result: ImageResult, names: Sequence[str]) -> Pixels:
    """Draw an image with its labels and, next to it, with its predictions; of a large one a crop."""
    crop = _choose_crop(header.display_size, result.predictions)
    if crop is None:
        pixels, left, top = decode(path, header.display_size, header).pixels, 0, 0
    else:
        pixels, left, top = decode_windows(path, [crop], header)[0].pixels, crop.left, crop.top
    pixels = np.ascontiguousarray(pixels)
    labels, predictions = (
        draw_boxes(pixels, [_shifted(box, left, top) for box in boxes if _intersects(box, crop)], names)
        for boxes in (truth_boxes(result.truth), prediction_boxes(result.predictions))
    )
    gap = np.full((pixels.shape[0], max(pixels.shape[1] // 80, 1), 3), 255, np.uint8)
    return np.concatenate((labels, gap, predictions), 1)


def _choose_crop(size: tuple[int, int], predictions: NDArray[np.float32]) -> Window | None:
    """Return a crop around the most confident box; None if the image is small enough to be shown whole."""
    width, height = size
    if max(size) <= _MAX_FULL_SIDE:
        return None
    center = (width / 2, height / 2)
    if len(predictions):
        best = predictions[int(predictions[:, 4].argmax())]
        center = (float(best[0] + best[2]) / 2, float(best[1] + best[3]) / 2)
    left = min(max(round(center[0]) - _CROP_SIDE // 2, 0), max(width - _CROP_SIDE, 0))
    top = min(max(round(center[1]) - _CROP_SIDE // 2, 0), max(height - _CROP_SIDE, 0))
    return Window(left, top, min(left + _CROP_SIDE, width), min(top + _CROP_SIDE, height))


def _intersects(box: DrawnBox, crop: Window | None) -> bool:
    left, top, right, bottom = box.corners
    return crop is None or (right > crop.left and bottom > crop.top and left < crop.right and top < crop.bottom)


def _shifted(box: DrawnBox, x: int, y: int) -> DrawnBox:
    left, top, right, bottom = box.corners
    return replace(box, corners=(left - x, top - y, right - x, bottom - y))
