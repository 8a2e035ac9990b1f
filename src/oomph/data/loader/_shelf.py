"""Whole pictures: a kept copy where there is one, decoded otherwise, and how long decoding took."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from .._cache import Cache
from ..decoding import Picture, PixelConversion, decode
from ..headers import Header

_BOXES = 8  # sizes that are told apart; more are many


class Decoded(NamedTuple):
    """What decoding took so far: pictures, their bytes, seconds, and how many sizes they were asked for in."""

    pictures: int
    bytes: int
    seconds: float
    boxes: int


class Shelf:
    """Where whole pictures come from. It may be given a cache while threads are using it."""

    def __init__(self, cache: Cache | None = None) -> None:
        self.cache = cache
        self._lock = threading.Lock()
        self._pictures = self._bytes = 0
        self._seconds = 0.0
        self._boxes: set[tuple[int, int]] = set()

    def picture(self, path: str, header: Header, box: tuple[int, int], pixels: PixelConversion) -> Picture:
        """The picture of a file, fitted into a box."""

        def make() -> Picture:
            began = time.perf_counter()
            made = decode(path, box, header, pixels)
            self._note(made.pixels.nbytes, box, time.perf_counter() - began)
            return made

        cache = self.cache
        return make() if cache is None else cache.picture(path, header, (box, pixels), make)

    def _note(self, size: int, box: tuple[int, int], seconds: float) -> None:
        with self._lock:
            self._pictures += 1
            self._bytes += size
            self._seconds += seconds
            if len(self._boxes) < _BOXES:
                self._boxes.add(box)

    @property
    def decoded(self) -> Decoded:
        """What decoding took so far."""
        with self._lock:
            return Decoded(self._pictures, self._bytes, self._seconds, len(self._boxes))

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Shelf, (self.cache,)  # a worker counts for itself
