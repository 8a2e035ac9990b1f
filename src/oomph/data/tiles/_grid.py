"""A grid of windows that covers an image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...errors import UsageError
from ..decoding import Window

_MIN_OBJECT_PIXELS = 8.0  # the smallest stride of a YOLO detector


@dataclass(frozen=True)
class Tiles:
    """Size and overlap of the windows that large images are cut into.

    Attributes:
        side: width and height of a window in image pixels.
        overlap: fraction of a window that the next one repeats. Objects up to that size are whole in some window.
    """

    side: int = 1024
    overlap: float = 0.2

    def __post_init__(self) -> None:
        if self.side < 1 or not 0 <= self.overlap < 1:
            raise UsageError(
                f"tiles with side={self.side} and overlap={self.overlap} are impossible",
                "use a side of 1 or more and an overlap from 0 to below 1",
            )

    def grid(self, width: int, height: int) -> list[Window]:
        """Return windows that cover an image, row by row; the windows at the edges are shifted inwards."""
        return list(_grid(self, width, height))

    def starts(self, length: int) -> Iterator[int]:
        """Yield the starts of the windows along a side of an image."""
        step = max(int(self.side * (1 - self.overlap)), 1)
        if length <= self.side:
            yield 0
            return
        count = -(-(length - self.side) // step)
        for number in range(count + 1):
            # Evenly spaced: as many windows as needed, all of full size, with at least the requested overlap.
            yield round(number * (length - self.side) / count)

    def is_worthwhile(self, width: int, height: int, canvas: int, object_side: float) -> bool:
        """Return True if objects of this side would be smaller than 8 pixels in the whole image resized to a canvas."""
        longest = max(width, height)
        return longest > self.side and object_side * canvas / longest < _MIN_OBJECT_PIXELS


@lru_cache(64)
def _grid(tiles: Tiles, width: int, height: int) -> tuple[Window, ...]:
    """Compute a grid once, because every window of an image looks up its neighbors."""
    lefts, tops = list(tiles.starts(width)), list(tiles.starts(height))
    return tuple(
        Window(left, top, min(left + tiles.side, width), min(top + tiles.side, height))
        for top in tops
        for left in lefts
    )
