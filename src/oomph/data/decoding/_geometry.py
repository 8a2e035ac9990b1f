"""Geometry of images on canvases: fitted sizes, letterboxes, EXIF orientations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..headers import Header

Array = NDArray[np.uint8]
GRAY = 114  # the padding color of YOLO detectors


class Window(NamedTuple):
    """A rectangle of an image, in pixels after EXIF rotation; right and bottom are exclusive."""

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
    """The placement of an image, or of a window of it, on a canvas.

    Attributes:
        window: the part of the image that is on the canvas.
        size: width and height that it was resized to.
        left: padding columns to the left.
        top: padding rows above.
    """

    window: Window
    size: tuple[int, int]
    left: int = 0
    top: int = 0

    @property
    def scale(self) -> tuple[float, float]:
        """Canvas pixels per image pixel, horizontally and vertically."""
        width, height = self.window.size
        return self.size[0] / width, self.size[1] / height

    @property
    def _shift(self) -> NDArray[np.float64]:
        x, y = self.scale
        return np.tile([self.left - self.window.left * x, self.top - self.window.top * y], 2)

    def to_canvas(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """Convert boxes (left, top, right, bottom) from image pixels to canvas pixels."""
        boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
        return np.asarray(boxes * np.array(self.scale * 2) + self._shift)

    def to_image(self, boxes: NDArray[np.floating]) -> NDArray[np.float64]:
        """Convert boxes (left, top, right, bottom) from canvas pixels to image pixels."""
        boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
        return np.asarray((boxes - self._shift) / np.array(self.scale * 2))


def fit_size(size: tuple[int, int], bounds: tuple[int, int]) -> tuple[int, int]:
    """Return the largest (width, height) within `bounds` that keeps the aspect ratio of `size`."""
    scale = min(bounds[0] / size[0], bounds[1] / size[1])
    return (
        min(max(round(size[0] * scale), 1), bounds[0]),
        min(max(round(size[1] * scale), 1), bounds[1]),
    )


def letterbox(window: Window, size: tuple[int, int], canvas: tuple[int, int]) -> Letterbox:
    """Center pixels of a size on a canvas; sizes are (width, height)."""
    return Letterbox(window, size, (canvas[0] - size[0]) // 2, (canvas[1] - size[1]) // 2)


def paste_letterbox(pixels: Array, window: Window, canvas: Array) -> Letterbox:
    """Write pixels into the center of a canvas (rows, columns, bands) and gray padding around them."""
    height, width = pixels.shape[:2]
    placement = letterbox(window, (width, height), (canvas.shape[1], canvas.shape[0]))
    left, top = placement.left, placement.top
    right, bottom = left + width, top + height
    canvas[:top] = GRAY
    canvas[bottom:] = GRAY
    canvas[top:bottom, :left] = GRAY
    canvas[top:bottom, right:] = GRAY
    canvas[top:bottom, left:right] = pixels
    return placement


def stored_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Convert a display size to the size as stored, before EXIF rotation."""
    return (size[1], size[0]) if orientation >= 5 else size  # noqa: PLR2004  EXIF's quarter turns


def stored_window(window: Window, header: Header) -> Window:
    """Convert a window after EXIF rotation to the same pixels as stored."""
    left, top, right, bottom = window
    width, height = header.width, header.height
    return {
        1: window,
        2: Window(width - right, top, width - left, bottom),
        3: Window(width - right, height - bottom, width - left, height - top),
        4: Window(left, height - bottom, right, height - top),
        5: Window(top, left, bottom, right),
        6: Window(top, height - right, bottom, height - left),
        7: Window(width - bottom, height - right, width - top, height - left),
        8: Window(width - bottom, left, width - top, right),
    }[header.orientation]


def apply_orientation(pixels: Array, orientation: int) -> Array:
    """Rotate and flip stored pixels as the EXIF orientation says."""
    if orientation == 1:
        return pixels
    transforms: dict[int, Callable[[], Array]] = {
        2: lambda: pixels[:, ::-1],
        3: lambda: pixels[::-1, ::-1],
        4: lambda: pixels[::-1],
        5: lambda: pixels.swapaxes(0, 1),
        6: lambda: np.rot90(pixels, -1),
        7: lambda: pixels[::-1, ::-1].swapaxes(0, 1),
        8: lambda: np.rot90(pixels, 1),
    }
    return np.ascontiguousarray(transforms[orientation]())
