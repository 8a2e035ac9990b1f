"""Pixels moved and coloured: with OpenCV where it is installed, with Pillow everywhere else.

Images are uint8 arrays (height, width, 3), red first. A mapping takes continuous coordinates of the source to those of
the result, (0, 0) being the corner of the first pixel and not its centre.
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

FILL = 114
_FEW = 32  # pixels
_SHRINK = 0.5  # below this scale, neighbouring pixels are averaged and not picked
_TABLE = 17  # points a side of the colour table
_CIRCLE = 180  # hues that OpenCV tells apart


@cache
def opencv() -> Any | None:
    """OpenCV if it is installed, on one thread: samples are made side by side, not pixels."""
    try:
        import cv2  # noqa: PLC0415  optional
    except ImportError:
        return None
    cv2.setNumThreads(1)
    return cv2


def blank(height: int, width: int) -> Pixels:
    """The grey that stands for no image."""
    return np.full((height, width, 3), FILL, dtype=np.uint8)


@dataclass(frozen=True)
class Placed:
    """How an image lies on a canvas: x to `scale * x + shift`, for x and for y."""

    scale: tuple[float, float]
    shift: tuple[float, float]


def scale_into(canvas: Pixels, image: Pixels, scale: tuple[float, float], shift: tuple[float, float]) -> Placed:
    """Draw an image onto a canvas, x to `scale * x + shift` (of x and y), as far as it lies inside.

    Returns:
        How it lies there now. Where only a part is to be seen, one that begins and ends between two pixels of the
        image, it is moved by up to half a pixel: whole pixels are scaled more than twice as fast.
    """
    across, down = (
        _span(side, limit, *along)
        for side, limit, *along in zip(image.shape[1::-1], canvas.shape[1::-1], scale, shift, strict=True)
    )
    if across.first < across.end and down.first < down.end:
        window = canvas[down.first : down.end, across.first : across.end]
        _resize(image, (across.low, down.low, across.high, down.high), window)
    return Placed((across.scale, down.scale), (across.shift, down.shift))


class _Span(NamedTuple):
    """Pixels of a canvas along one axis, the whole pixels of an image that are drawn there, and what that comes to."""

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
    if high - low >= _FEW:  # of fewer, the rounding would change the scale, for all that isn't to be seen too
        scale = (end - first) / (high - low)
        shift = first - scale * low
    return _Span(first, end, low, high, scale, shift)


def _resize(image: Pixels, box: tuple[int, int, int, int], window: Pixels) -> None:
    """Draw a part of an image, (left, top, right, bottom), as large as the window is."""
    left, top, right, bottom = box
    size = high, wide = window.shape[:2]
    cv2 = opencv()
    if (bottom - top, right - left) == size:
        window[:] = image[top:bottom, left:right]
    elif cv2 is None:
        window[:] = np.asarray(Image.fromarray(image).resize((wide, high), Image.Resampling.BILINEAR, box=box))
    else:
        shrinks = min(high / (bottom - top), wide / (right - left)) < _SHRINK
        way = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        cv2.resize(image[top:bottom, left:right], (wide, high), dst=window, interpolation=way)


def warp(image: Pixels, mapping: Matrix, size: tuple[int, int]) -> Pixels:
    """An image through any 3x3 mapping into a result of (width, height), grey where nothing falls."""
    cv2 = opencv()
    if cv2 is None:
        back = np.linalg.inv(mapping)
        back /= back[2, 2]
        picture = Image.fromarray(image)
        kind, data = Image.Transform.PERSPECTIVE, tuple(back.flatten()[:8])
        return np.asarray(picture.transform(size, kind, data, Image.Resampling.BILINEAR, fillcolor=(FILL,) * 3))
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    centred = np.linalg.inv(half) @ mapping @ half
    drawn: Pixels = cv2.warpPerspective(image, centred, size, borderValue=(FILL,) * 3)
    return drawn


def turn_over(image: Pixels, canvas: Pixels, *, upside: bool, across: bool) -> None:
    """Copy an image onto a canvas of its size, upside down or mirrored or both or neither."""
    cv2 = opencv()
    if cv2 is None or not across:  # what NumPy copies backwards by pixels, it copies slowly
        canvas[:] = image[:: -1 if upside else 1, :: -1 if across else 1]
    else:
        cv2.flip(image, -1 if upside else 1, dst=canvas)


def recolour(image: Pixels, hue: float, saturation: float, value: float) -> Pixels:
    """Multiply hue, saturation and value by factors; hue goes round, the others stop at their ends."""
    cv2 = opencv()
    if cv2 is None:
        table = _colour_table(hue, saturation, value)
        return np.asarray(Image.fromarray(image).filter(ImageFilter.Color3DLUT(_TABLE, table)))
    told = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    if hue * (_CIRCLE - 1) <= 255:  # noqa: PLR2004  OpenCV goes round by itself, and multiplies five times as fast
        changed = cv2.transform(told, np.diag((hue, saturation, value)))
    else:
        steps = np.arange(256)
        columns = (steps * hue % _CIRCLE, np.minimum(steps * saturation, 255), np.minimum(steps * value, 255))
        changed = cv2.LUT(told, np.stack(columns, -1).astype(np.uint8)[None])
    drawn: Pixels = cv2.cvtColor(changed, cv2.COLOR_HSV2RGB)
    return drawn


def _colour_table(hue: float, saturation: float, value: float) -> NDArray[np.float32]:
    """What becomes of a grid of colours; Pillow looks the rest up between them."""
    ramp = np.linspace(0, 1, _TABLE)
    blue, green, red = np.meshgrid(ramp, ramp, ramp, indexing="ij")  # red changes fastest
    colours = np.stack((red, green, blue), -1).reshape(-1, 3)
    top, low = colours.max(1), colours.min(1)
    chroma = np.maximum(top - low, 1e-12)
    sector = colours.argmax(1)
    turned = (np.roll(colours, -1, 1) - np.roll(colours, -2, 1))[np.arange(len(colours)), sector] / chroma
    angle = (turned + 2 * sector) % 6 * hue % 6
    bright = np.minimum(top * value, 1)
    strong = np.minimum(np.where(top > 0, (top - low) / np.maximum(top, 1e-12), 0) * saturation, 1)
    # Each channel falls from full to none over two sixths of the circle, counted from its own place on it.
    places = (np.array([5.0, 3.0, 1.0])[None] + angle[:, None]) % 6
    fall = np.clip(np.minimum(places, 4 - places), 0, 1)
    table: NDArray[np.float32] = (bright[:, None] * (1 - strong[:, None] * fall)).astype(np.float32)
    return table.ravel()
