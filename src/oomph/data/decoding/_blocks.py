"""One tile or strip of a TIFF: unpacked, its predictor undone, its bytes in order.

imagecodecs unpacks everything and faster; without it there is zlib for Deflate and Pillow for JPEG.
"""

from __future__ import annotations

import io
import zlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import JpegImagePlugin

from ..headers import Layout, UnreadableImage

NONE, LZW, JPEG, DEFLATE, OLD_DEFLATE, PACKBITS, ZSTD = 1, 5, 7, 8, 32946, 32773, 50000
_OWN = {NONE, DEFLATE, OLD_DEFLATE, JPEG}
_WITH_CODECS = {LZW, PACKBITS, ZSTD}
_PALETTE, _YCBCR, _CMYK = 3, 6, 5
_FLOAT_PREDICTOR = 3
_ADOBE = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00"


@cache
def codecs() -> Any | None:
    """The package imagecodecs, where it is installed."""
    try:
        import imagecodecs  # noqa: PLC0415  optional, and large
    except ImportError:
        return None
    return imagecodecs


def known(compression: int) -> bool:
    """Whether blocks of a compression are unpacked here."""
    return compression in _OWN or (compression in _WITH_CODECS and codecs() is not None)


def readable(layout: Layout) -> bool:
    """Whether this file reads the blocks of a picture; Pillow has to otherwise."""
    if layout.packed or layout.photometric in {_PALETTE, _CMYK}:
        return False
    if layout.photometric == _YCBCR and layout.compression != JPEG:
        return False
    if layout.compression == JPEG and (layout.planar or layout.dtype != "uint8" or layout.bands not in {1, 3}):
        return False
    return known(layout.compression) and layout.predictor in {1, 2, _FLOAT_PREDICTOR}


def unpack(layout: Layout, data: bytes, row: int) -> NDArray[np.generic]:
    """The samples of a block: rows, columns, bands."""
    wide, tall = layout.block
    if not layout.tiled:
        tall = min(tall, layout.height - row * tall)  # the last strip is shorter
    bands = 1 if layout.planar else layout.bands
    if layout.compression == JPEG:
        return _jpeg(layout, data, (tall, wide, bands))
    dtype = np.dtype(layout.dtype)
    size = wide * tall * bands * dtype.itemsize
    raw = _bytes(layout.compression, data, size)
    if len(raw) < size:
        raise UnreadableImage("broken TIFF: a tile is shorter than it must be")
    if layout.predictor == _FLOAT_PREDICTOR:
        return _undo_float(np.frombuffer(raw, np.uint8, size), dtype, (tall, wide, bands))
    samples = np.frombuffer(raw, dtype.newbyteorder("<" if layout.order == "<" else ">"), wide * tall * bands)
    samples = samples.reshape(tall, wide, bands)
    if not samples.dtype.isnative:
        samples = samples.astype(dtype)
    return _undo(samples) if layout.predictor == 2 else samples  # noqa: PLR2004  TIFF's number


def _undo(samples: NDArray[Any]) -> NDArray[Any]:
    """Horizontal differences summed up; they wrap around."""
    found = codecs()
    if found is not None:
        return np.asarray(found.delta_decode(samples, axis=1))
    return np.add.accumulate(samples, axis=1, dtype=samples.dtype)


def _undo_float(raw: NDArray[np.uint8], dtype: np.dtype[Any], shape: tuple[int, int, int]) -> NDArray[Any]:
    """Fractions whose bytes were sorted by significance, then differenced."""
    tall, wide, bands = shape
    summed = np.add.accumulate(raw.reshape(tall, -1, bands), axis=1, dtype=np.uint8)
    sorted_back = summed.reshape(tall, dtype.itemsize, wide * bands).transpose(0, 2, 1)
    return np.ascontiguousarray(sorted_back).view(dtype.newbyteorder(">")).reshape(shape).astype(dtype)


def _bytes(compression: int, data: bytes, size: int) -> bytes:
    """Unpack at most `size` bytes: a block can't be a bomb."""
    if compression == NONE:
        return data
    found = codecs()
    try:
        if compression in {DEFLATE, OLD_DEFLATE}:
            return _inflated(found, data, size)
        unpackers = {LZW: "lzw_decode", PACKBITS: "packbits_decode", ZSTD: "zstd_decode"}
        return getattr(found, unpackers[compression])(data, out=size)  # type: ignore[no-any-return]
    except (RuntimeError, ValueError, zlib.error) as error:
        raise UnreadableImage(f"broken TIFF: a tile can't be unpacked ({str(error)[:60]})") from None


def _inflated(found: Any | None, data: bytes, size: int) -> bytes:
    if found is not None:
        try:
            return found.deflate_decode(data, out=size)  # type: ignore[no-any-return]
        except (RuntimeError, ValueError):
            pass  # libdeflate wants exactly so many bytes; zlib takes those that are there
    return zlib.decompressobj().decompress(data, size)


def _jpeg(layout: Layout, data: bytes, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A JPEG of its own, with tables that all blocks share put in, and told which colours it holds."""
    if data[:2] != b"\xff\xd8":
        raise UnreadableImage("broken TIFF: a tile that should be a JPEG isn't one")
    adobe = _ADOBE + (b"\x01" if layout.photometric == _YCBCR else b"\x00") if layout.bands > 1 else b""
    tables = layout.tables[2:-2] if len(layout.tables) > 4 else b""  # noqa: PLR2004  start and end markers
    whole = b"\xff\xd8" + adobe + tables + data[2:]
    try:
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(whole))
        if image.size[0] > shape[1] or image.size[1] > shape[0]:
            raise UnreadableImage("broken TIFF: a tile is larger than it says")
        pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:
        raise UnreadableImage(f"broken TIFF: a tile can't be decoded ({str(error)[:60]})") from None
    return pixels.reshape(*pixels.shape[:2], -1)[:, :, : shape[2]]
