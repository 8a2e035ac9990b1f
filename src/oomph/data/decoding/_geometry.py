"""Where pixels go: sizes that fit, letterboxes, EXIF's rotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..headers import Header

Array = NDArray[np.uint8]
GREY = 114  # what is left over around an image, as detectors are used to


class Window(NamedTuple):
    """A part of an image in its own pixels, as it is seen: right and bottom are outside."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.right - self.left, self.bottom - self.top


@dataclass(frozen=True)
class Letterbox:
    """An image placed into a canvas.

    Attributes:
        window: the part of the image that is shown.
        size: width and height that it was resized to.
        left: columns to the left of it.
        top: rows above it.
    """

    window: Window
    size: tuple[int, int]
    left: int = 0
    top: int = 0

    @property
    def scale(self) -> tuple[float, float]:
        """Canvas pixels for one of the image, across and down."""
        wide, tall = self.window.size
        return self.size[0] / wide, self.size[1] / tall

    def to_canvas(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """Boxes (left, top, right, bottom) in pixels of the image, moved to the canvas."""
        x, y = self.scale
        boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
        shift = np.array([self.left - self.window.left * x, self.top - self.window.top * y])
        return np.asarray(boxes * np.array([x, y, x, y]) + np.tile(shift, 2))

    def to_image(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """Boxes on the canvas, moved back to pixels of the image."""
        x, y = self.scale
        boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
        shift = np.array([self.left - self.window.left * x, self.top - self.window.top * y])
        return np.asarray((boxes - np.tile(shift, 2)) / np.array([x, y, x, y]))


def fit_size(size: tuple[int, int], box: tuple[int, int]) -> tuple[int, int]:
    """The largest size of the same shape inside a box; both are width and height."""
    scale = min(box[0] / size[0], box[1] / size[1])
    return (
        min(max(round(size[0] * scale), 1), box[0]),
        min(max(round(size[1] * scale), 1), box[1]),
    )


def letterbox(window: Window, size: tuple[int, int], canvas: tuple[int, int]) -> Letterbox:
    """Centre something of a size on a canvas; sizes are width and height."""
    return Letterbox(window, size, (canvas[0] - size[0]) // 2, (canvas[1] - size[1]) // 2)


def paste_letterbox(pixels: Array, window: Window, canvas: Array) -> Letterbox:
    """Put pixels into the middle of a canvas (rows, columns, bands) and grey around them."""
    tall, wide = pixels.shape[:2]
    spot = letterbox(window, (wide, tall), (canvas.shape[1], canvas.shape[0]))
    bottom, right = spot.top + tall, spot.left + wide
    canvas[: spot.top] = GREY
    canvas[bottom:] = GREY
    canvas[spot.top : bottom, : spot.left] = GREY
    canvas[spot.top : bottom, right:] = GREY
    canvas[spot.top : bottom, spot.left : right] = pixels
    return spot


def stored_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """A width and height as seen, in the file's own directions."""
    return (size[1], size[0]) if orientation >= 5 else size  # noqa: PLR2004  EXIF's quarter turns


def stored_window(window: Window, header: Header) -> Window:
    """A window as seen, in the file's own directions."""
    left, top, right, bottom = window
    wide, tall = header.width, header.height
    return {
        1: window,
        2: Window(wide - right, top, wide - left, bottom),
        3: Window(wide - right, tall - bottom, wide - left, tall - top),
        4: Window(left, tall - bottom, right, tall - top),
        5: Window(top, left, bottom, right),
        6: Window(top, tall - right, bottom, tall - left),
        7: Window(wide - bottom, tall - right, wide - top, tall - left),
        8: Window(wide - bottom, left, wide - top, right),
    }[header.orientation]


def turned(pixels: Array, orientation: int) -> Array:
    """Pixels as stored, turned as EXIF says they are seen."""
    if orientation == 1:
        return pixels
    seen = {
        2: lambda: pixels[:, ::-1],
        3: lambda: pixels[::-1, ::-1],
        4: lambda: pixels[::-1],
        5: lambda: pixels.swapaxes(0, 1),
        6: lambda: np.rot90(pixels, -1),
        7: lambda: pixels[::-1, ::-1].swapaxes(0, 1),
        8: lambda: np.rot90(pixels, 1),
    }[orientation]()
    return np.ascontiguousarray(seen)
