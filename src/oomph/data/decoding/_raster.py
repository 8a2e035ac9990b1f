"""Formats whose parts can be read one by one: TIFF by tiles or strips, .npy by memory mapping."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..headers import Header, Layout, Reader, UnreadableImage, read_layouts
from ._blocks import readable, unpack
from ._geometry import Window
from ._tone import PixelConversion, to_bytes, to_rgb

Samples = NDArray[np.generic]
_BAND = 64  # rows at a time where blocks don't say
_FILES = 8  # whose directories are remembered


class Raster(Protocol):
    """An image whose windows can be read."""

    width: int
    height: int
    step: int  # rows that are best read together

    def read(self, window: Window, bands: tuple[int, ...]) -> Samples:
        """Rows, columns and the chosen bands of a window inside of the image."""
        ...


class Npy:
    """A saved array, mapped for the time of each read."""

    def __init__(self, path: str, header: Header) -> None:
        self._path, self._header = path, header
        self.width, self.height = header.width, header.height
        self.step = _BAND

    def read(self, window: Window, bands: tuple[int, ...]) -> Samples:
        """Copy a window out of the file."""
        try:
            mapped = np.load(self._path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, TypeError, SyntaxError) as error:
            raise UnreadableImage(f"broken .npy: {str(error)[:80]}") from None
        if mapped.ndim == 2:  # noqa: PLR2004  no bands
            mapped = mapped[:, :, None]
        elif mapped.shape[:2] != (self.height, self.width):
            mapped = np.moveaxis(mapped, 0, 2)
        if mapped.shape != (self.height, self.width, self._header.bands):
            raise UnreadableImage("changed since it was indexed")
        part = mapped[window.top : window.bottom, window.left : window.right]
        return np.array(_bands(part, bands))


class Tiff:
    """One picture of a TIFF."""

    def __init__(self, path: str, layout: Layout) -> None:
        self._path, self.layout = path, layout
        self.width, self.height = layout.width, layout.height
        self.step = layout.block[1] if layout.tiled else max(layout.block[1], min(_BAND, layout.height))
        if layout.compression == 1 and not layout.tiled:
            self.step = min(_BAND, layout.height)

    def read(self, window: Window, bands: tuple[int, ...]) -> Samples:
        """Decode the blocks under a window."""
        layout = self.layout
        wide, tall = window.size
        dtype = np.dtype(layout.dtype)
        out = np.zeros((tall, wide, len(bands)), dtype)
        descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            read = _reader(descriptor)
            if layout.compression == 1 and not layout.tiled:
                _raw_rows(layout, read, window, (bands, out))
            else:
                _blocks(layout, read, window, (bands, out))
        finally:
            os.close(descriptor)
        return out


def _reader(descriptor: int) -> Callable[[int, int], bytes]:
    def read(offset: int, count: int) -> bytes:
        return Reader(descriptor, offset + count).at(offset, count)

    return read


def _blocks(
    layout: Layout, read: Callable[[int, int], bytes], window: Window, into: tuple[tuple[int, ...], Samples]
) -> None:
    bands, out = into
    (wide, tall), (across, down) = layout.block, layout.grid
    planes = bands if layout.planar else (0,)
    for place, plane in enumerate(planes):
        for row in range(window.top // tall, -(-window.bottom // tall)):
            for column in range(window.left // wide, -(-window.right // wide)):
                number = (plane * down + row) * across + column
                offset, count = int(layout.offsets[number]), int(layout.counts[number])
                if not count:
                    continue  # a sparse file leaves empty blocks out
                block = unpack(layout, read(offset, count), row)
                chosen = block if layout.planar else _bands(block, bands)
                left, top = column * wide, row * tall
                part = out[:, :, place : place + 1] if layout.planar else out
                _paste(chosen, (left, top), window, part)


def _bands(samples: Samples, bands: tuple[int, ...]) -> Samples:
    """Some bands; as a view where they stand side by side."""
    if bands == tuple(range(bands[0], bands[0] + len(bands))):
        return samples[..., bands[0] : bands[0] + len(bands)]
    return samples[..., list(bands)]


def _paste(block: Samples, at: tuple[int, int], window: Window, out: Samples) -> None:
    left, top = max(at[0], window.left), max(at[1], window.top)
    right = min(at[0] + block.shape[1], window.right)
    bottom = min(at[1] + block.shape[0], window.bottom)
    if right <= left or bottom <= top:
        return
    out[top - window.top : bottom - window.top, left - window.left : right - window.left] = block[
        top - at[1] : bottom - at[1], left - at[0] : right - at[0]
    ]


def _raw_rows(
    layout: Layout, read: Callable[[int, int], bytes], window: Window, into: tuple[tuple[int, ...], Samples]
) -> None:
    """Strips that are not packed: read the columns of each row and nothing else."""
    bands, out = into
    dtype = np.dtype(layout.dtype).newbyteorder("<" if layout.order == "<" else ">")
    samples = 1 if layout.planar else layout.bands
    pixel, strip = dtype.itemsize * samples, layout.block[1]
    down = layout.grid[1]
    for place, plane in enumerate(bands if layout.planar else (0,)):
        for row in range(window.top, window.bottom):
            offset = (
                int(layout.offsets[plane * down + row // strip]) + (row % strip * layout.width + window.left) * pixel
            )
            line = np.frombuffer(read(offset, window.size[0] * pixel), dtype).reshape(-1, samples)
            if layout.planar:
                out[row - window.top, :, place] = line[:, 0]
            else:
                out[row - window.top] = _bands(line, bands)


@lru_cache(_FILES)
def _layouts(path: str, size: int, mtime_ns: int, *, whole: bool) -> list[Layout]:
    """The directories of a TIFF, remembered: windows are cut from the same file again and again."""
    del size, mtime_ns  # part of the key: a changed file is read again
    with Reader.open(path) as reader:
        return read_layouts(reader) if whole else read_layouts(reader, 1)


def raster_of(path: str, header: Header, size: tuple[int, int] | None = None) -> Raster | None:
    """The image as a raster, or its smallest stored copy of twice a size; None where only Pillow can read it."""
    if header.format == "npy":
        return Npy(path, header)
    layouts = _layouts(path, header.size, header.mtime_ns, whole=size is not None)
    best = layouts[0]
    if (best.width, best.height) != (header.width, header.height):
        raise UnreadableImage("changed since it was indexed")
    least = (2 * size[0], 2 * size[1]) if size is not None else (best.width, best.height)
    for layout in layouts[1:]:
        big_enough = layout.width >= least[0] and layout.height >= least[1]
        if layout.reduced and big_enough and layout.width < best.width and layout.bands == best.bands:
            best = layout
    return Tiff(path, best) if readable(best) else None


def shrunk(raster: Raster, bands: tuple[int, ...], size: tuple[int, int], pixels: PixelConversion) -> NDArray[np.uint8]:
    """A raster shrunk to a size, some rows at a time: never more than a band of it is in memory."""
    factor = max(int(min(raster.width / size[0], raster.height / size[1]) / 2), 1)
    small: Image.Image | None = None
    kept: NDArray[np.uint8] | None = None
    done = 0
    for top in range(0, raster.height, raster.step):
        bottom = min(top + raster.step, raster.height)
        band = to_rgb(to_bytes(raster.read(Window(0, top, raster.width, bottom), bands), pixels.levels))
        if kept is not None and len(kept):
            band = np.concatenate([kept, band])
        whole = len(band) if bottom == raster.height else len(band) // factor * factor
        kept = band[whole:].copy()
        if not whole:
            continue
        piece = Image.fromarray(band[:whole])
        piece = piece.reduce(factor) if factor > 1 else piece
        if small is None:
            small = Image.new("RGB", (piece.width, -(-raster.height // factor)))
        small.paste(piece, (0, done))
        done += piece.height
    assert small is not None  # noqa: S101  a raster has a row
    box = (0.0, 0.0, raster.width / factor, raster.height / factor)
    return np.asarray(small.resize(size, Image.Resampling.BICUBIC, box=box))


def cut(
    raster: Raster, bands: tuple[int, ...], windows: list[Window], pixels: PixelConversion
) -> list[NDArray[np.uint8]]:
    """Windows of a raster."""
    return [to_rgb(to_bytes(raster.read(window, bands), pixels.levels)) for window in windows]
