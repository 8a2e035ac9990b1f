"""Windows that cover an image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...errors import UsageError
from ..decoding import Window


@dataclass(frozen=True)
class Tiles:
    """How large images are cut.

    Attributes:
        side: width and height of a window in pixels of the image.
        overlap: share of a window that the next one shows again; objects up to that size are whole in one of them.
    """

    side: int = 1024
    overlap: float = 0.2

    def __post_init__(self) -> None:
        if self.side < 1 or not 0 <= self.overlap < 1:
            raise UsageError(
                f"tiles of {self.side} pixels that overlap by {self.overlap} can't be cut",
                "the side is 1 or more, the overlap from 0 to below 1",
            )

    def grid(self, width: int, height: int) -> list[Window]:
        """Windows that cover an image, row by row; the last ones are moved inwards, small images have one."""
        return list(_grid(self, width, height))

    def starts(self, length: int) -> Iterator[int]:
        """Where windows begin along a side of an image."""
        step = max(int(self.side * (1 - self.overlap)), 1)
        if length <= self.side:
            yield 0
            return
        count = -(-(length - self.side) // step)
        for number in range(count + 1):
            # Spread evenly: the same number of windows, with more overlap than asked for and none cut short.
            yield round(number * (length - self.side) / count)

    def pay(self, width: int, height: int, canvas: int, smallest: float) -> bool:
        """Whether to cut an image: squeezed to a canvas, objects of its smallest side would be below 8 pixels."""
        return max(width, height) > self.side and smallest * canvas / max(width, height) < _SEEN


@lru_cache(64)
def _grid(tiles: Tiles, width: int, height: int) -> tuple[Window, ...]:
    """Remembered: every window of an image asks for its neighbours."""
    starts = list(tiles.starts(width)), list(tiles.starts(height))
    return tuple(
        Window(left, top, min(left + tiles.side, width), min(top + tiles.side, height))
        for top in starts[1]
        for left in starts[0]
    )


_SEEN = 8.0  # pixels that a detector of stride 8 needs
