"""`SampleMaker`: decodes the images of a sample within a budget of bytes, and builds the sample."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...units import format_size
from .._index import ImageIndex
from .._samples import DecodedImage, ImageRequest, SampleBuilder, sample_rng
from ..decoding import Picture, PixelConversion, Window, decode_cost, decode_windows, decode_windows_cost, fit_size
from ..headers import Header, UnreadableImage, read_header
from ._cached_decoder import CachedDecoder
from ._timings import Timings

_SYSTEM_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # not caused by the file
Acquire = Callable[[int], AbstractContextManager[None]]
WindowKey = tuple[int, Window]


class PoolClosed(Exception):
    """The pass or the worker pool was closed while a thread waited."""


class BadSample(Exception):
    """A sample that can't be made because of one of its images."""

    def __init__(self, image: int, reason: str) -> None:
        super().__init__(image, reason)
        self.image, self.reason = image, reason


class ByteSemaphore:
    """Limits the bytes in use at once, first come, first served.

    glibc keeps freed memory for the next allocation of the same thread. Such bytes count as retained; before the
    budget would be exceeded, malloc_trim returns them to the system.
    """

    def __init__(self, budget: int, timings: Timings, peak: int = 0) -> None:
        self.budget, self.used, self.peak = budget, 0, peak
        self._retained = 0
        self._timings = timings  # budget_wait_seconds are added
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()
        self._closed = False

    @contextmanager
    def acquire(self, count: int) -> Iterator[None]:
        """Hold bytes for the duration of a `with` block, after waiting until they are available.

        A request above the budget waits until nothing else is in use. Requests are granted in order, so that small
        ones can't starve a large one.
        """
        self._wait(count)
        try:
            yield
        finally:
            with self._changed:
                self.used -= count
                self._retained += count
                self._changed.notify_all()

    def _wait(self, count: int) -> None:
        ticket, started = object(), time.perf_counter()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while not self._closed and not self._is_next(ticket, count):
                    self._changed.wait()
                if self._closed:
                    raise PoolClosed
                if self.used + self._retained + count > self.budget:
                    _release_freed_memory()
                    self._retained = 0
                self._timings.budget_wait_seconds += time.perf_counter() - started
                self.used += count
                self.peak = max(self.peak, self.used)
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _is_next(self, ticket: object, count: int) -> bool:
        return self._waiting[0] is ticket and (self.used + count <= self.budget or not self.used)

    def close(self) -> None:
        """Raise PoolClosed in all waiting threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _release_freed_memory() -> None:
    with suppress(AttributeError, OSError, TypeError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


class WindowCache:
    """Decoded windows that were not requested yet, up to a number of bytes; each is returned once.

    If several threads request windows of one image, the first decodes it and the others wait.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._pictures: OrderedDict[WindowKey, Picture] = OrderedDict()
        self._decoding: dict[int, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: WindowKey, decode: Callable[[], Iterable[tuple[WindowKey, Picture]]]) -> Picture:
        """Return a window; if it is missing, call `decode`, return its first result and cache the others."""
        with self._lock:
            if key in self._pictures:
                return self._pop(key)
            decoding = self._decoding.setdefault(key[0], threading.Lock())
        with decoding:
            with self._lock:
                if key in self._pictures:
                    return self._pop(key)
            (_, picture), *siblings = decode()
            with self._lock:
                self._decoding.pop(key[0], None)
                for sibling_key, sibling in siblings:
                    self._add(sibling_key, sibling)
            return picture

    def _pop(self, key: WindowKey) -> Picture:
        picture = self._pictures.pop(key)
        self._used -= picture.pixels.nbytes
        return picture

    def _add(self, key: WindowKey, picture: Picture) -> None:
        size = picture.pixels.nbytes
        if size > self._capacity or key in self._pictures:
            return
        while self._used + size > self._capacity:
            self._pop(next(iter(self._pictures)))
        self._pictures[key] = picture
        self._used += size

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return WindowCache, (self._capacity,)  # every worker process starts with an empty cache


@dataclass(frozen=True)
class SampleMaker:
    """Makes samples; shared by all threads, and copied to worker processes."""

    index: ImageIndex
    builder: SampleBuilder
    conversion: PixelConversion
    seed: int
    max_sample_bytes: int
    windows: WindowCache
    decoder: CachedDecoder  # of whole images
    skipped: dict[int, str]  # images that turned out to be unusable, with reasons; filled by the loader

    def image_of(self, sample: int) -> int:
        """Return the image of a sample."""
        image_of = getattr(self.builder, "image_of", None)
        return int(image_of(sample)) if image_of is not None else sample

    def sample_bytes(self, sample: int, epoch: int, canvas: tuple[int, int]) -> int:
        """Return the peak bytes for making a sample.

        Raises:
            BadSample: an image can't be used, or the sample exceeds the budget.
        """
        return self._bytes(self.builder.requests(sample, canvas, sample_rng(self.seed, epoch, sample)))

    def _bytes(self, requests: Sequence[ImageRequest]) -> int:
        results = peak = largest = 0
        for request in requests:
            header = self._header(request)
            needed = _decode_bytes(request, header)
            if needed > peak:
                peak, largest = needed, request.index
            width, height = _result_size(request, header)
            results += width * height * 3
        if peak + results > self.max_sample_bytes:
            raise BadSample(largest, over_budget(peak + results, self.max_sample_bytes))
        return peak + results

    def _header(self, request: ImageRequest) -> Header:
        reason = self.index.reason(request.index) or self.skipped.get(request.index)
        if reason is not None:
            raise BadSample(request.index, reason)
        return self.index[request.index]

    def make_samples(
        self, samples: Sequence[int], epoch: int, canvas: NDArray[np.uint8], acquire: Acquire | None = None
    ) -> list[Any]:
        """Make samples on the rows of a canvas; return the target of each, or a BadSample if it can't be made."""
        return [self._target(sample, epoch, canvas[row], acquire) for row, sample in enumerate(samples)]

    def _target(self, sample: int, epoch: int, canvas: NDArray[np.uint8], acquire: Acquire | None) -> Any:
        rng = sample_rng(self.seed, epoch, sample)
        requests = self.builder.requests(sample, (canvas.shape[1], canvas.shape[0]), rng)
        try:
            needed = self._bytes(requests)
            with acquire(needed) if acquire is not None else nullcontext():
                images = [DecodedImage(request, self._decode(request)) for request in requests]
                return self.builder.build(images, canvas, rng)
        except BadSample as bad:
            return bad.with_traceback(None)  # the traceback would keep the canvas alive
        except UnreadableImage as error:  # raised by the builder
            return BadSample(requests[0].index, error.why)

    def _decode(self, request: ImageRequest) -> Picture:
        path, header = self.index.path(request.index), self._header(request)
        try:
            header = self._current_header(path, header, request)
            if request.window is None:
                bounds = request.bounds or header.display_size
                return self.decoder.decode(path, header, bounds, self.conversion, stretch=request.stretch)
            return self._decode_window(path, header, request, request.window)
        except UnreadableImage as error:
            raise BadSample(request.index, error.why) from None
        except FileNotFoundError:
            raise BadSample(request.index, "the file was deleted after it was indexed") from None
        except OSError as error:
            if error.errno in _SYSTEM_ERRORS:
                raise
            raise BadSample(request.index, f"can't be read: {error.strerror or error}") from None

    def _decode_window(self, path: str, header: Header, request: ImageRequest, window: Window) -> Picture:
        windows = [window, *request.siblings]
        keys = [(request.index, sibling) for sibling in windows]
        picture = self.windows.get(
            keys[0], lambda: zip(keys, decode_windows(path, windows, header, self.conversion), strict=True)
        )
        return picture if request.bounds is None else _resize(picture, request.bounds)

    def _current_header(self, path: str, header: Header, request: ImageRequest) -> Header:
        """Read the header again if the file changed, so that a larger image can't exceed the budget."""
        status = os.stat(path)  # noqa: PTH116  called for every image
        if (status.st_size, status.st_mtime_ns) == (header.file_size, header.mtime_ns):
            return header
        current = read_header(path)
        if _decode_bytes(request, current) > _decode_bytes(request, header):
            raise UnreadableImage("changed since it was indexed, and needs more memory now", "index the folder again")
        return current


def over_budget(needed: int, budget: int) -> str:
    """Return the reason for skipping an image that is too large to decode."""
    return f"decoding needs {format_size(needed)}, more than the budget of {format_size(budget)} per sample"


def _decode_bytes(request: ImageRequest, header: Header) -> int:
    if request.window is None:
        return decode_cost(header, _result_size(request, header))
    return decode_windows_cost(header, [request.window, *request.siblings])


def _result_size(request: ImageRequest, header: Header) -> tuple[int, int]:
    size = header.display_size if request.window is None else request.window.size
    if request.bounds is None:
        return size
    return request.bounds if request.stretch else fit_size(size, request.bounds)


def _resize(picture: Picture, bounds: tuple[int, int]) -> Picture:
    size = fit_size(picture.window.size, bounds)
    if size == picture.window.size:
        return picture
    image = Image.fromarray(picture.pixels).resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    return Picture(np.asarray(image), picture.width, picture.height, picture.window)
