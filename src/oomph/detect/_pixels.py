"""Pixels moved and coloured: with OpenCV where it is installed, with Pillow everywhere else.

Images are uint8 arrays (height, width, 3), red first. A mapping takes continuous coordinates of the source to those of
the result, (0, 0) being the corner of the first pixel and not its centre.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Pixels = NDArray[np.uint8]
Matrix = NDArray[np.float64]

FILL = 114
_SHRINK = 0.5  # below this scale, neighbouring pixels are averaged and not picked
_TABLE = 17  # points a side of the colour table


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


def scale_into(canvas: Pixels, image: Pixels, scale: tuple[float, float], shift: tuple[float, float]) -> None:
    """Draw an image onto a canvas, x to `scale * x + shift` (of x and y), as far as it lies inside."""
    ends = [
        (max(round(shift[axis]), 0), min(round(side * scale[axis] + shift[axis]), limit))
        for axis, (side, limit) in enumerate(zip(image.shape[1::-1], canvas.shape[1::-1], strict=True))
    ]
    (left, right), (top, bottom) = ends
    if left >= right or top >= bottom:
        return
    local = (shift[0] - left, shift[1] - top)
    canvas[top:bottom, left:right] = _scaled(image, scale, local, (right - left, bottom - top))


def _scaled(image: Pixels, scale: tuple[float, float], shift: tuple[float, float], size: tuple[int, int]) -> Pixels:
    """A part of a scaled image, (width, height) pixels of it."""
    if shift == (0.0, 0.0) and scale == (1.0, 1.0) and size == image.shape[1::-1]:
        return image
    cv2 = opencv()
    if cv2 is None:
        return _scaled_by_pillow(image, scale, shift, size)
    if min(scale) < _SHRINK:
        smaller = [max(round(side * factor), 1) for side, factor in zip(image.shape[1::-1], scale, strict=True)]
        scale = (scale[0] * image.shape[1] / smaller[0], scale[1] * image.shape[0] / smaller[1])
        image = cv2.resize(image, smaller, interpolation=cv2.INTER_AREA)
    across, down = scale
    back = np.array([[1 / across, 0, (0.5 - shift[0]) / across - 0.5], [0, 1 / down, (0.5 - shift[1]) / down - 0.5]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    drawn: Pixels = cv2.warpAffine(image, back, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return drawn


def _scaled_by_pillow(
    image: Pixels, scale: tuple[float, float], shift: tuple[float, float], size: tuple[int, int]
) -> Pixels:
    box = []
    for axis, side in enumerate(image.shape[1::-1]):
        low = min(max(-shift[axis] / scale[axis], 0.0), side - 1e-3)
        high = min(max((size[axis] - shift[axis]) / scale[axis], low + 1e-3), float(side))
        box.append((low, high))
    (left, right), (top, bottom) = box
    picture = Image.fromarray(image)
    return np.asarray(picture.resize(size, Image.Resampling.BILINEAR, box=(left, top, right, bottom)))


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
    steps = np.arange(256)
    columns = (steps * hue % 180, np.minimum(steps * saturation, 255), np.minimum(steps * value, 255))
    look_up = np.stack(columns, -1).astype(np.uint8)[None]
    changed = cv2.LUT(cv2.cvtColor(image, cv2.COLOR_RGB2HSV), look_up)
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
