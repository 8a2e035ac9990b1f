"""Pixel operations, with OpenCV if it is installed and Pillow otherwise.

Images are uint8 arrays (height, width, 3) in RGB. A matrix maps continuous coordinates of the source to those of the
result; (0, 0) is the corner of the first pixel, not its center.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Pixels = NDArray[np.uint8]
Matrix = NDArray[np.float64]

GRAY = 114
_MIN_EXACT_PIXELS = 32
_AREA_SCALE = 0.5  # below this scale, pixels are averaged instead of interpolated
_LUT_SIZE = 17  # points per side of the color lookup table
_OPENCV_HUES = 180


@cache
def opencv() -> Any | None:
    """Return OpenCV if it is installed, set to one thread: parallelism is over samples, not pixels."""
    try:
        import cv2  # noqa: PLC0415  optional
    except ImportError:
        return None
    cv2.setNumThreads(1)
    return cv2


def gray_canvas(height: int, width: int) -> Pixels:
    """Return an image filled with the letterbox gray."""
    return np.full((height, width, 3), GRAY, dtype=np.uint8)


@dataclass(frozen=True)
class ScaleShift:
    """Position of an image on a canvas: x becomes `scale * x + shift`, for x and y."""

    scale: tuple[float, float]
    shift: tuple[float, float]


def scale_into(canvas: Pixels, image: Pixels, scale: tuple[float, float], shift: tuple[float, float]) -> ScaleShift:
    """Draw an image onto a canvas, x to `scale * x + shift` (for x and y), as far as it lies inside.

    Returns:
        The actual position. A visible part that begins or ends between two pixels of the image is moved by up to half a
        pixel, because scaling whole pixels is more than twice as fast.
    """
    x, y = (
        _span(side, limit, *along)
        for side, limit, *along in zip(image.shape[1::-1], canvas.shape[1::-1], scale, shift, strict=True)
    )
    if x.first < x.end and y.first < y.end:
        _resize(image, (x.low, y.low, x.high, y.high), canvas[y.first : y.end, x.first : x.end])
    return ScaleShift((x.scale, y.scale), (x.shift, y.shift))


class _Span(NamedTuple):
    """Pixels of the canvas (first to end) and of the image (low to high) along an axis, and the resulting position."""

    first: int
    end: int
    low: int
    high: int
    scale: float
    shift: float


def _span(side: int, limit: int, scale: float, shift: float) -> _Span:
    first, end = max(round(shift), 0), min(round(side * scale + shift), limit)
    low = min(max(round((first - shift) / scale), 0), side - 1)
    high = min(max(round((end - shift) / scale), low + 1), side)
    if high - low >= _MIN_EXACT_PIXELS:  # with fewer pixels, the rounding would change the scale of the whole image
        scale = (end - first) / (high - low)
        shift = first - scale * low
    return _Span(first, end, low, high, scale, shift)


def _resize(image: Pixels, box: tuple[int, int, int, int], window: Pixels) -> None:
    """Resize a part of an image (left, top, right, bottom) into the window."""
    left, top, right, bottom = box
    size = high, wide = window.shape[:2]
    cv2 = opencv()
    if (bottom - top, right - left) == size:
        window[:] = image[top:bottom, left:right]
    elif cv2 is None:
        window[:] = np.asarray(Image.fromarray(image).resize((wide, high), Image.Resampling.BILINEAR, box=box))
    else:
        shrinks = min(high / (bottom - top), wide / (right - left)) < _AREA_SCALE
        interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        cv2.resize(image[top:bottom, left:right], (wide, high), dst=window, interpolation=interpolation)


def warp(image: Pixels, matrix: Matrix, size: tuple[int, int]) -> Pixels:
    """Transform an image by a 3x3 matrix into a result of (width, height), gray outside of the image."""
    cv2 = opencv()
    if cv2 is None:
        inverse = np.linalg.inv(matrix)
        inverse /= inverse[2, 2]
        coefficients = tuple(inverse.flatten()[:8])
        warped = Image.fromarray(image).transform(
            size, Image.Transform.PERSPECTIVE, coefficients, Image.Resampling.BILINEAR, fillcolor=(GRAY,) * 3
        )
        return np.asarray(warped)
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    centered = np.linalg.inv(half) @ matrix @ half  # OpenCV's coordinates are those of pixel centers
    result: Pixels = cv2.warpPerspective(image, centered, size, borderValue=(GRAY,) * 3)
    return result


def flip_into(image: Pixels, canvas: Pixels, *, flipud: bool, fliplr: bool) -> None:
    """Copy an image onto a canvas of its size, flipped up-down, left-right, both or neither."""
    cv2 = opencv()
    if cv2 is None or not fliplr:  # NumPy is slow only at copying rows backwards
        canvas[:] = image[:: -1 if flipud else 1, :: -1 if fliplr else 1]
    else:
        cv2.flip(image, -1 if flipud else 1, dst=canvas)


def adjust_hsv(image: Pixels, hue: float, saturation: float, value: float) -> Pixels:
    """Multiply hue, saturation and value by factors; hue wraps around, the others saturate."""
    cv2 = opencv()
    if cv2 is None:
        table = _hsv_table(hue, saturation, value)
        return np.asarray(Image.fromarray(image).filter(ImageFilter.Color3DLUT(_LUT_SIZE, table)))
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    if hue * (_OPENCV_HUES - 1) <= 255:  # noqa: PLR2004  OpenCV then wraps by itself, and multiplies 5 times as fast
        adjusted = cv2.transform(hsv, np.diag((hue, saturation, value)))
    else:
        steps = np.arange(256)
        columns = (steps * hue % _OPENCV_HUES, np.minimum(steps * saturation, 255), np.minimum(steps * value, 255))
        adjusted = cv2.LUT(hsv, np.stack(columns, -1).astype(np.uint8)[None])
    result: Pixels = cv2.cvtColor(adjusted, cv2.COLOR_HSV2RGB)
    return result


def _hsv_table(hue: float, saturation: float, value: float) -> NDArray[np.float32]:
    """Return the adjusted colors of a grid of RGB colors; Pillow interpolates between them."""
    ramp = np.linspace(0, 1, _LUT_SIZE)
    blue, green, red = np.meshgrid(ramp, ramp, ramp, indexing="ij")  # red changes fastest
    colors = np.stack((red, green, blue), -1).reshape(-1, 3)
    high, low = colors.max(1), colors.min(1)
    chroma = np.maximum(high - low, 1e-12)
    sector = colors.argmax(1)
    difference = (np.roll(colors, -1, 1) - np.roll(colors, -2, 1))[np.arange(len(colors)), sector] / chroma
    angle = (difference + 2 * sector) % 6 * hue % 6
    new_value = np.minimum(high * value, 1)
    new_saturation = np.minimum(np.where(high > 0, (high - low) / np.maximum(high, 1e-12), 0) * saturation, 1)
    # Each channel falls from full to zero over two sixths of the hue circle, offset per channel.
    offsets = (np.array([5.0, 3.0, 1.0])[None] + angle[:, None]) % 6
    falloff = np.clip(np.minimum(offsets, 4 - offsets), 0, 1)
    table: NDArray[np.float32] = (new_value[:, None] * (1 - new_saturation[:, None] * falloff)).astype(np.float32)
    return table.ravel()
