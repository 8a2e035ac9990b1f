"""`CachedDecoder`: decodes whole images through an optional cache, and decides whether a cache pays off."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from ...units import format_size
from .._cache import Cache
from .._resources import HostResources
from ..decoding import Picture, PixelConversion, decode
from ..headers import Header

# Reading a cache entry: hashing the file, then reading and verifying the pixels. Measured: 1.0 ms for 820 kB.
_LOOKUP_SECONDS, _SECONDS_PER_BYTE = 0.4e-3, 1 / 1.2e9
_MIN_SPEEDUP = 3.0  # of reading an entry over decoding the image
_MIN_CACHED_FRACTION = 0.1  # of all images
_MIN_DECODED_IMAGES = 8
_MAX_COUNTED_SIZES = 8
MAX_CACHED_SIZES = 2  # sizes that images are decoded to: training and validation


class DecodeStats(NamedTuple):
    """Decoding so far: images, bytes of their pixels, seconds, and the number of different sizes."""

    images: int
    bytes: int
    seconds: float
    sizes: int


class CachedDecoder:
    """Decodes whole images and measures it. A cache may be set while threads are decoding."""

    def __init__(self, cache: Cache | None = None) -> None:
        self.cache = cache
        self._lock = threading.Lock()
        self._images = self._bytes = 0
        self._seconds = 0.0
        self._sizes: set[tuple[int, int]] = set()

    def decode(
        self,
        path: str,
        header: Header,
        bounds: tuple[int, int],
        conversion: PixelConversion,
        *,
        stretch: bool = False,
    ) -> Picture:
        """Return the image of a file, fitted into or stretched to `bounds`, from the cache or decoded."""

        def decode_measured() -> Picture:
            started = time.perf_counter()
            picture = decode(path, bounds, header, conversion, stretch=stretch)
            self._record(picture.pixels.nbytes, bounds, time.perf_counter() - started)
            return picture

        cache = self.cache
        if cache is None:
            return decode_measured()
        settings = (bounds, conversion, "stretch") if stretch else (bounds, conversion)
        return cache.get(path, header, settings, decode_measured)

    def _record(self, size: int, bounds: tuple[int, int], seconds: float) -> None:
        with self._lock:
            self._images += 1
            self._bytes += size
            self._seconds += seconds
            if len(self._sizes) < _MAX_COUNTED_SIZES:
                self._sizes.add(bounds)

    @property
    def stats(self) -> DecodeStats:
        """Decoding so far, without images from the cache."""
        with self._lock:
            return DecodeStats(self._images, self._bytes, self._seconds, len(self._sizes))

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return CachedDecoder, (self.cache,)  # every worker process counts its own images


class CacheDecision(NamedTuple):
    """Bytes for a cache in memory (0 for no cache), the reason, and True if the decision may change later."""

    bytes: int
    why: str
    undecided: bool = False


def decide_cache(stats: DecodeStats, all_bytes: int, resources: HostResources, *, is_waiting: bool) -> CacheDecision:
    """Decide whether a cache in memory pays off, and how large it may be.

    Args:
        stats: decoding so far.
        all_bytes: size of a cache of all images.
        resources: what is available now.
        is_waiting: the consumer waits for batches.
    """
    if stats.images < _MIN_DECODED_IMAGES:
        return CacheDecision(0, "too few whole images were decoded to decide", undecided=True)
    if stats.sizes > MAX_CACHED_SIZES:
        return CacheDecision(0, "images are decoded to changing sizes, so entries would not be reused")
    decode_seconds = stats.seconds / stats.images
    read_seconds = _LOOKUP_SECONDS + stats.bytes / stats.images * _SECONDS_PER_BYTE
    times = f"decoding takes {decode_seconds * 1e3:.1f} ms per image, the cache {read_seconds * 1e3:.1f} ms"
    if decode_seconds < read_seconds * _MIN_SPEEDUP:
        return CacheDecision(0, f"{times}: too little gain")
    if not is_waiting:
        return CacheDecision(0, "batches are ready before they are needed", undecided=True)
    # Half of the memory, because the peak of the model may be still to come, and /dev/shm must not fill up.
    cap = min(all_bytes, resources.memory // 2, resources.shm * 9 // 10)
    if cap < all_bytes * _MIN_CACHED_FRACTION:
        available = f"{format_size(resources.memory)} of memory and {format_size(resources.shm)} of /dev/shm"
        return CacheDecision(0, f"a full cache needs {format_size(all_bytes)}; available: {available}")
    part = "all images" if cap == all_bytes else f"{cap / all_bytes:.0%} of the images"
    return CacheDecision(cap, f"{times}, and batches are late; {part} fit")
