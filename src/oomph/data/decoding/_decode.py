"""The way to decode an image, chosen from its header: one for training, validation and use."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..headers import Flag, Header, UnreadableImage, read_header
from . import _pillow, _raster
from ._geometry import Window, fit_size, stored_size, stored_window, turned
from ._picture import Picture
from ._rows import as_file, can_cut, cut_rows
from ._tone import PixelConversion, to_bytes, to_rgb
from ._turbo import decode_bytes, decode_file

Name = str | os.PathLike[str]
_DEFAULT = PixelConversion()


def decode(
    path: Name,
    box: tuple[int, int],
    header: Header | None = None,
    pixels: PixelConversion = _DEFAULT,
    *,
    stretch: bool = False,
) -> Picture:
    """Decode an image to the largest size that fits into a box, decoding as few pixels as that takes.

    Args:
        path: the file.
        box: width and height that the result fits into; small images are enlarged to it.
        header: what an index says of the file; read when missing.
        pixels: how samples become bytes.
        stretch: fill the box and let the shape go.

    Raises:
        Broken: the file can't be decoded.
    """
    name = os.fspath(path)
    header = header or read_header(name)
    size = box if stretch else fit_size(header.shown, box)
    own = stored_size(size, header.orientation)
    raw = _whole(name, header, own, pixels)
    shown = header.shown
    return Picture(turned(raw, header.orientation), *shown, Window(0, 0, *shown))


def _whole(path: str, header: Header, size: tuple[int, int], pixels: PixelConversion) -> NDArray[np.uint8]:
    if header.format in {"tiff", "npy"}:
        raster = _raster.raster_of(path, header, size)
        if raster is not None:
            found = _raster.shrunk(raster, pixels.chosen(header.bands), size, pixels)
            return _positive(found, header)
    with Path(path).open("rb") as file:
        image = _pillow.opened(file, header)
        return to_rgb(_pillow.shrunk(image, header, size, pixels))


def decode_windows(
    path: Name, windows: list[Window], header: Header | None = None, pixels: PixelConversion = _DEFAULT
) -> list[Picture]:
    """Cut windows out of an image in its full size, each a copy, out of one decoding.

    Args:
        path: the file.
        windows: parts of the image as it is seen, inside of it.
        header: what an index says of the file; read when missing.
        pixels: how samples become bytes.

    Raises:
        Broken: the file can't be decoded.
        UsageError: a window lies outside of the image.
    """
    name = os.fspath(path)
    header = header or read_header(name)
    shown = header.shown
    for window in windows:
        inside = 0 <= window.left < window.right <= shown[0] and 0 <= window.top < window.bottom <= shown[1]
        if not inside:
            raise UsageError(f"the window {tuple(window)} is not inside an image of {shown[0]}×{shown[1]}", "clip it")
    own = [stored_window(window, header) for window in windows]
    parts = _cut(name, header, own, pixels)
    return [
        Picture(turned(part, header.orientation), *shown, window) for part, window in zip(parts, windows, strict=True)
    ]


def _cut(path: str, header: Header, windows: list[Window], pixels: PixelConversion) -> list[NDArray[np.uint8]]:
    if header.format in {"tiff", "npy"}:
        raster = _raster.raster_of(path, header)
        if raster is not None:
            parts = _raster.cut(raster, pixels.chosen(header.bands), windows, pixels)
            return [_positive(part, header) for part in parts]
    if header.format == "jpeg" and not header.flags & Flag.CMYK:
        found = _cut_jpeg(path, header, windows)
        if found is not None:
            return [to_rgb(to_bytes(part, pixels.levels)) for part in found]
    with Path(path).open("rb") as file:
        image = _pillow.opened(file, header)
        return [to_rgb(part) for part in _pillow.cut(image, windows, pixels)]


def _cut_jpeg(path: str, header: Header, windows: list[Window]) -> list[NDArray[np.uint8]] | None:
    """Windows of a JPEG by their rows, or out of the whole; None leaves it to Pillow."""
    grey = header.bands == 1
    if can_cut(header):
        try:
            return _cut_by_rows(path, header, windows, grey=grey)
        except UnreadableImage:
            pass  # the markers lie: decode the whole
    whole = decode_file(path, grey=grey)
    if whole is None:
        return None
    if whole.shape[:2] != (header.height, header.width):
        raise UnreadableImage("changed since it was indexed")
    return [whole[top:bottom, left:right].copy() for left, top, right, bottom in windows]


def _cut_by_rows(path: str, header: Header, windows: list[Window], *, grey: bool) -> list[NDArray[np.uint8]]:
    """Windows one after another; those beside each other share the rows that are decoded for them."""
    parts: list[NDArray[np.uint8]] = []
    rows: NDArray[np.uint8] | None = None
    first, last = 0, 0
    for left, top, right, bottom in windows:
        if rows is None or (top, bottom) != (first, last):
            rows = None  # before the next ones are there
            rows, (first, last) = _rows(path, header, (top, bottom), grey=grey), (top, bottom)
        parts.append(rows[:, left:right].copy())
    return parts


def _rows(path: str, header: Header, ends: tuple[int, int], *, grey: bool) -> NDArray[np.uint8]:
    cut = cut_rows(path, header, *ends)
    pixels = decode_bytes(cut.data, grey=grey)
    if pixels is None:
        small = Header(format="jpeg", width=header.width, height=cut.rows, bands=header.bands)
        image = _pillow.opened(as_file(cut), small)
        _pillow.load(image)
        pixels = np.asarray(image)
    return pixels[ends[0] - cut.top : ends[1] - cut.top]


def _positive(pixels: NDArray[np.uint8], header: Header) -> NDArray[np.uint8]:
    """TIFFs where white is zero, the right way round."""
    return 255 - pixels if header.flags & Flag.INVERTED else pixels
