"""Formats with separately readable windows: TIFF by tiles or strips, .npy by memory mapping."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..headers import FileReader, Header, TiffPage, UnreadableImage, read_pages
from ._geometry import Window
from ._pixel_conversion import PixelConversion, to_rgb, to_uint8
from ._tiff_blocks import can_read_blocks, decode_block

Samples = NDArray[np.generic]
ReadBytes = Callable[[int, int], bytes]  # from an offset and a count
_BAND_ROWS = 64  # rows read at a time if the file has no blocks
_CACHED_FILES = 8
_UNCOMPRESSED = 1


class Raster(Protocol):
    """An image with separately readable windows."""

    width: int
    height: int
    band_rows: int  # rows to read at a time

    def read(self, window: Window, bands: tuple[int, ...]) -> Samples:
        """Read a window of the image as an array (rows, columns, bands)."""
        ...


class NpyRaster:
    """A .npy array, memory-mapped for the duration of each read."""

    def __init__(self, path: str, header: Header) -> None:
        self._path, self._header = path, header
        self.width, self.height = header.width, header.height
        self.band_rows = _BAND_ROWS

    def read(self, window: Window, bands: tuple[int, ...]) -> Samples:
        """Copy a window out of the file."""
        try:
            mapped = np.load(self._path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, TypeError, SyntaxError) as error:
            raise UnreadableImage(f"damaged .npy: {str(error)[:80]}") from None
        if mapped.ndim == 2:  # noqa: PLR2004  no axis for bands
            mapped = mapped[:, :, None]
        elif mapped.shape[:2] != (self.height, self.width):
            mapped = np.moveaxis(mapped, 0, 2)
        if mapped.shape != (self.height, self.width, self._header.bands):
            raise UnreadableImage("changed since it was indexed")
        return np.array(_select_bands(mapped[window.top : window.bottom, window.left : window.right], bands))


class TiffRaster:
    """One page of a TIFF."""

    def __init__(self, path: str, page: TiffPage) -> None:
        self._path, self._page = path, page
        self.width, self.height = page.width, page.height
        self._has_raw_rows = page.compression == _UNCOMPRESSED and not page.tiled
        if self._has_raw_rows:
            self.band_rows = min(_BAND_ROWS, page.height)
        else:
            self.band_rows = page.block_size[1] if page.tiled else max(page.block_size[1], min(_BAND_ROWS, page.height))

    def read(self, window: Window, bands: tuple[int, ...]) -> Samples:
        """Decode the blocks under a window."""
        width, height = window.size
        output = np.zeros((height, width, len(bands)), np.dtype(self._page.dtype))
        descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:

            def read_bytes(offset: int, count: int) -> bytes:
                return FileReader(descriptor, offset + count).read(offset, count)

            if self._has_raw_rows:
                _read_raw_rows(self._page, read_bytes, window, (bands, output))
            else:
                _read_blocks(self._page, read_bytes, window, (bands, output))
        finally:
            os.close(descriptor)
        return output


def _read_blocks(
    page: TiffPage, read_bytes: ReadBytes, window: Window, target: tuple[tuple[int, ...], Samples]
) -> None:
    bands, output = target
    (width, height), (across, down) = page.block_size, page.grid
    planes = bands if page.planar else (0,)
    for position, plane in enumerate(planes):
        for row in range(window.top // height, -(-window.bottom // height)):
            for column in range(window.left // width, -(-window.right // width)):
                number = (plane * down + row) * across + column
                offset, count = int(page.offsets[number]), int(page.byte_counts[number])
                if not count:
                    continue  # a sparse file leaves out empty blocks
                block = decode_block(page, read_bytes(offset, count), row)
                selected = block if page.planar else _select_bands(block, bands)
                part = output[:, :, position : position + 1] if page.planar else output
                _paste_block(selected, (column * width, row * height), window, part)


def _select_bands(samples: Samples, bands: tuple[int, ...]) -> Samples:
    """Select bands, as a view if they are adjacent."""
    if bands == tuple(range(bands[0], bands[0] + len(bands))):
        return samples[..., bands[0] : bands[0] + len(bands)]
    return samples[..., list(bands)]


def _paste_block(block: Samples, corner: tuple[int, int], window: Window, output: Samples) -> None:
    left, top = max(corner[0], window.left), max(corner[1], window.top)
    right = min(corner[0] + block.shape[1], window.right)
    bottom = min(corner[1] + block.shape[0], window.bottom)
    if right <= left or bottom <= top:
        return
    output[top - window.top : bottom - window.top, left - window.left : right - window.left] = block[
        top - corner[1] : bottom - corner[1], left - corner[0] : right - corner[0]
    ]


def _read_raw_rows(
    page: TiffPage, read_bytes: ReadBytes, window: Window, target: tuple[tuple[int, ...], Samples]
) -> None:
    """Read only the needed columns of each row of uncompressed strips."""
    bands, output = target
    dtype = np.dtype(page.dtype).newbyteorder("<" if page.byte_order == "<" else ">")
    samples = 1 if page.planar else page.bands
    pixel_bytes, strip_rows = dtype.itemsize * samples, page.block_size[1]
    strips = page.grid[1]
    for position, plane in enumerate(bands if page.planar else (0,)):
        for row in range(window.top, window.bottom):
            strip_offset = int(page.offsets[plane * strips + row // strip_rows])
            offset = strip_offset + (row % strip_rows * page.width + window.left) * pixel_bytes
            line = np.frombuffer(read_bytes(offset, window.size[0] * pixel_bytes), dtype).reshape(-1, samples)
            if page.planar:
                output[row - window.top, :, position] = line[:, 0]
            else:
                output[row - window.top] = _select_bands(line, bands)


@lru_cache(_CACHED_FILES)
def _cached_pages(path: str, size: int, mtime_ns: int, *, first_only: bool) -> list[TiffPage]:
    """Read the pages of a TIFF once: many windows are cut from the same file."""
    del size, mtime_ns  # part of the cache key, so that a changed file is read again
    with FileReader.open(path) as reader:
        return read_pages(reader, 1) if first_only else read_pages(reader)


def open_raster(path: str, header: Header, size: tuple[int, int] | None = None) -> Raster | None:
    """Open an image as a raster; None if only Pillow can read it.

    Args:
        path: the file.
        header: its header.
        size: target (width, height): the smallest overview of at least twice that size is opened.
    """
    if header.format == "npy":
        return NpyRaster(path, header)
    pages = _cached_pages(path, header.file_size, header.mtime_ns, first_only=size is None)
    best = pages[0]
    if (best.width, best.height) != (header.width, header.height):
        raise UnreadableImage("changed since it was indexed")
    min_width, min_height = (2 * size[0], 2 * size[1]) if size is not None else (best.width, best.height)
    for page in pages[1:]:
        large_enough = page.width >= min_width and page.height >= min_height
        if page.is_overview and large_enough and page.width < best.width and page.bands == best.bands:
            best = page
    return TiffRaster(path, best) if can_read_blocks(best) else None


def read_resized(
    raster: Raster, bands: tuple[int, ...], size: tuple[int, int], conversion: PixelConversion
) -> NDArray[np.uint8]:
    """Read a whole raster and resize it, in bands of rows so that only one band is in memory."""
    factor = max(int(min(raster.width / size[0], raster.height / size[1]) / 2), 1)
    reduced: Image.Image | None = None
    rest: NDArray[np.uint8] | None = None  # rows that don't fill a multiple of the factor yet
    reduced_rows = 0
    for top in range(0, raster.height, raster.band_rows):
        bottom = min(top + raster.band_rows, raster.height)
        band = to_rgb(to_uint8(raster.read(Window(0, top, raster.width, bottom), bands), conversion.levels))
        if rest is not None and len(rest):
            band = np.concatenate([rest, band])
        rows = len(band) if bottom == raster.height else len(band) // factor * factor
        rest = band[rows:].copy()
        if not rows:
            continue
        strip = Image.fromarray(band[:rows])
        strip = strip.reduce(factor) if factor > 1 else strip
        if reduced is None:
            reduced = Image.new("RGB", (strip.width, -(-raster.height // factor)))
        reduced.paste(strip, (0, reduced_rows))
        reduced_rows += strip.height
    assert reduced is not None  # noqa: S101  a raster has at least one row
    box = (0.0, 0.0, raster.width / factor, raster.height / factor)
    return np.asarray(reduced.resize(size, Image.Resampling.BICUBIC, box=box))


def read_windows(
    raster: Raster, bands: tuple[int, ...], windows: list[Window], conversion: PixelConversion
) -> list[NDArray[np.uint8]]:
    """Read windows of a raster as 8-bit RGB."""
    return [to_rgb(to_uint8(raster.read(window, bands), conversion.levels)) for window in windows]
