"""Makes one sample: reads what it needs, within the bytes that its headers say."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...units import format_size
from .._index import ImageIndex
from ..decoding import Picture, PixelConversion, decode_cost, decode_windows, decode_windows_cost, fit_size
from ..headers import Header, UnreadableImage, read_header
from ._pool import Pool
from ._recipe import DecodedImage, ImageRequest, SampleBuilder, generator
from ._shelf import Shelf

# The machine's trouble, not the file's.
_NOT_THE_FILE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
Take = Callable[[int], AbstractContextManager[None]]


class Spoiled(Exception):
    """A sample can't be made because of one of its images: which, and why."""

    def __init__(self, image: int, reason: str) -> None:
        super().__init__(image, reason)
        self.image, self.reason = image, reason


@contextmanager
def _free(count: int) -> Iterator[None]:
    del count
    yield


@dataclass(frozen=True)
class Maker:
    """What every thread and worker needs to make samples; small to pickle.

    Attributes:
        index: the images.
        recipe: how samples are made of them.
        pixels: how samples of pixels become bytes.
        seed: what random numbers come from.
        budget: bytes that one sample may take.
        pool: windows that were cut but not used yet.
        shelf: where whole images come from.
        aside: images that turned out to be unusable, with the reason; the loader's, which fills it.
    """

    index: ImageIndex
    builder: SampleBuilder
    pixels: PixelConversion
    seed: int
    budget: int
    pool: Pool
    shelf: Shelf = field(default_factory=Shelf)
    skipped: dict[int, str] = field(default_factory=dict)

    def image_of(self, sample: int) -> int:
        """The image that a sample is about; recipes that number samples otherwise say which."""
        found = getattr(self.builder, "image_of", None)
        return int(found(sample)) if found is not None else sample

    def bytes_of(self, sample: int, epoch: int, canvas: tuple[int, int]) -> int:
        """Bytes that making a sample takes at once.

        Raises:
            Spoiled: one of its images can't be used, or not within the budget.
        """
        wants = self.builder.requests(sample, canvas, generator(self.seed, epoch, sample))
        return self._bytes(wants)

    def _bytes(self, wants: Sequence[ImageRequest]) -> int:
        kept = highest = largest = 0
        for want in wants:
            header = self._header(want)
            needed = want_cost(want, header)
            if needed > highest:
                highest, largest = needed, want.index
            wide, tall = _result(want, header)
            kept += wide * tall * 3
        if highest + kept > self.budget:
            asked, given = format_size(highest + kept), format_size(self.budget)
            raise Spoiled(largest, f"decoding it takes {asked}, more than the {given} that the budget leaves")
        return highest + kept

    def _header(self, want: ImageRequest) -> Header:
        reason = self.index.reason(want.index) or self.skipped.get(want.index)
        if reason is not None:
            raise Spoiled(want.index, reason)
        return self.index[want.index]

    def make(self, sample: int, epoch: int, canvas: NDArray[np.uint8], take: Take = _free) -> Any:
        """Make a sample on its canvas, holding its bytes while that lasts.

        Raises:
            Spoiled: one of its images can't be used.
        """
        rng = generator(self.seed, epoch, sample)
        size = (canvas.shape[1], canvas.shape[0])
        wants = self.builder.requests(sample, size, rng)
        with take(self._bytes(wants)):
            pieces = [DecodedImage(want, self._picture(want)) for want in wants]
            try:
                return self.builder.build(pieces, canvas, rng)
            except UnreadableImage as on_error:  # a recipe may find fault with an image too
                raise Spoiled(wants[0].index, on_error.why) from None

    def _picture(self, want: ImageRequest) -> Picture:
        path, header = self.index.path(want.index), self._header(want)
        try:
            return self._decode(path, header, want)
        except UnreadableImage as on_error:
            raise Spoiled(want.index, on_error.why) from None
        except FileNotFoundError:
            raise Spoiled(want.index, "it was there when the index was made, and is gone") from None
        except OSError as error:
            if error.errno in _NOT_THE_FILE:
                raise
            raise Spoiled(want.index, f"can't be read: {error.strerror or error}") from None

    def _decode(self, path: str, header: Header, want: ImageRequest) -> Picture:
        header = self._current(path, header, want)
        if want.window is None:
            return self.shelf.picture(path, header, want.box or header.shown, self.pixels)
        windows = [want.window, *want.siblings]
        picture = self.pool.get(
            (want.index, want.window),
            lambda: zip(
                [(want.index, window) for window in windows],
                decode_windows(path, windows, header, self.pixels),
                strict=True,
            ),
        )
        return picture if want.box is None else _resized(picture, want.box)

    def _current(self, path: str, header: Header, want: ImageRequest) -> Header:
        """The header, read again when the file was changed: nothing larger may come in under its name."""
        status = Path(path).stat()
        if (status.st_size, status.st_mtime_ns) == (header.size, header.mtime_ns):
            return header
        now = read_header(path)
        if want_cost(want, now) > want_cost(want, header):
            raise UnreadableImage("changed since it was indexed, and takes more bytes now", "index it again")
        return now


def want_cost(want: ImageRequest, header: Header) -> int:
    """Bytes at once to decode what is wanted."""
    if want.window is None:
        return decode_cost(header, fit_size(header.shown, want.box or header.shown))
    return decode_windows_cost(header, [want.window, *want.siblings])


def _result(want: ImageRequest, header: Header) -> tuple[int, int]:
    shown = header.shown if want.window is None else want.window.size
    return shown if want.box is None else fit_size(shown, want.box)


def _resized(picture: Picture, box: tuple[int, int]) -> Picture:
    size = fit_size(picture.window.size, box)
    if size == picture.window.size:
        return picture
    image = Image.fromarray(picture.pixels).resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)
    return Picture(np.asarray(image), picture.width, picture.height, picture.window)
