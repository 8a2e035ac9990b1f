"""Decoding of one tile or strip of a TIFF: decompression, predictor, byte order.

imagecodecs decompresses every format and is faster. Without it, zlib handles Deflate and Pillow handles JPEG.
"""

from __future__ import annotations

import io
import zlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import JpegImagePlugin

from ..headers import TiffPage, UnreadableImage

# TIFF compression numbers
_NONE, _LZW, _JPEG, _DEFLATE, _OLD_DEFLATE, _PACKBITS, _ZSTD = 1, 5, 7, 8, 32946, 32773, 50000
_BUILTIN_COMPRESSIONS = {_NONE, _DEFLATE, _OLD_DEFLATE, _JPEG}
_IMAGECODECS_COMPRESSIONS = {_LZW: "lzw_decode", _PACKBITS: "packbits_decode", _ZSTD: "zstd_decode"}
_PALETTE, _YCBCR, _CMYK = 3, 6, 5
_HORIZONTAL_PREDICTOR, _FLOAT_PREDICTOR = 2, 3
_ADOBE_SEGMENT = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00"


@cache
def load_imagecodecs() -> Any | None:
    """Return the package imagecodecs, or None if it isn't installed."""
    try:
        import imagecodecs  # noqa: PLC0415  optional, and large
    except ImportError:
        return None
    return imagecodecs


def can_decompress(compression: int) -> bool:
    """Return True if blocks with this TIFF compression can be decompressed."""
    if compression in _BUILTIN_COMPRESSIONS:
        return True
    return compression in _IMAGECODECS_COMPRESSIONS and load_imagecodecs() is not None


def can_read_blocks(page: TiffPage) -> bool:
    """Return True if `decode_block` reads the blocks of a page; Pillow must decode the whole page otherwise."""
    if page.packed or page.photometric in {_PALETTE, _CMYK}:
        return False
    if page.photometric == _YCBCR and page.compression != _JPEG:
        return False
    if page.compression == _JPEG and (page.planar or page.dtype != "uint8" or page.bands not in {1, 3}):
        return False
    return can_decompress(page.compression) and page.predictor in {1, _HORIZONTAL_PREDICTOR, _FLOAT_PREDICTOR}


def decode_block(page: TiffPage, data: bytes, block_row: int) -> NDArray[np.generic]:
    """Decode a tile or strip to samples (rows, columns, bands)."""
    width, height = page.block_size
    if not page.tiled:
        height = min(height, page.height - block_row * height)  # the last strip is shorter
    bands = 1 if page.planar else page.bands
    shape = (height, width, bands)
    if page.compression == _JPEG:
        return _decode_jpeg(page, data, shape)
    dtype = np.dtype(page.dtype)
    count = width * height * bands
    raw = _decompress(page.compression, data, count * dtype.itemsize)
    if len(raw) < count * dtype.itemsize:
        raise UnreadableImage("damaged TIFF: a tile is too short")
    if page.predictor == _FLOAT_PREDICTOR:
        return _undo_float_predictor(np.frombuffer(raw, np.uint8, count * dtype.itemsize), dtype, shape)
    samples = np.frombuffer(raw, dtype.newbyteorder("<" if page.byte_order == "<" else ">"), count).reshape(shape)
    if not samples.dtype.isnative:
        samples = samples.astype(dtype)
    return _undo_horizontal_predictor(samples) if page.predictor == _HORIZONTAL_PREDICTOR else samples


def _undo_horizontal_predictor(samples: NDArray[Any]) -> NDArray[Any]:
    """Sum horizontal differences, with wraparound."""
    imagecodecs = load_imagecodecs()
    if imagecodecs is not None:
        return np.asarray(imagecodecs.delta_decode(samples, axis=1))
    return np.add.accumulate(samples, axis=1, dtype=samples.dtype)


def _undo_float_predictor(raw: NDArray[np.uint8], dtype: np.dtype[Any], shape: tuple[int, int, int]) -> NDArray[Any]:
    """Sum the differences of bytes, which are grouped by significance, and regroup them by sample."""
    height, width, bands = shape
    summed = np.add.accumulate(raw.reshape(height, -1, bands), axis=1, dtype=np.uint8)
    by_sample = summed.reshape(height, dtype.itemsize, width * bands).transpose(0, 2, 1)
    return np.ascontiguousarray(by_sample).view(dtype.newbyteorder(">")).reshape(shape).astype(dtype)


def _decompress(compression: int, data: bytes, size: int) -> bytes:
    """Decompress at most `size` bytes, so that a decompression bomb can't exceed the expected memory."""
    if compression == _NONE:
        return data
    imagecodecs = load_imagecodecs()
    try:
        if compression in {_DEFLATE, _OLD_DEFLATE}:
            return _inflate(imagecodecs, data, size)
        decompress = getattr(imagecodecs, _IMAGECODECS_COMPRESSIONS[compression])
        return decompress(data, out=size)  # type: ignore[no-any-return]
    except (RuntimeError, ValueError, zlib.error) as error:
        raise UnreadableImage(f"damaged TIFF: a tile can't be decompressed ({str(error)[:60]})") from None


def _inflate(imagecodecs: Any | None, data: bytes, size: int) -> bytes:
    if imagecodecs is not None:
        try:
            return imagecodecs.deflate_decode(data, out=size)  # type: ignore[no-any-return]
        except (RuntimeError, ValueError):
            pass  # libdeflate requires exactly `size` bytes of output; zlib accepts fewer
    return zlib.decompressobj().decompress(data, size)


def _decode_jpeg(page: TiffPage, data: bytes, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Decode a block that is a JPEG, after inserting the shared tables and a marker for its color space."""
    if data[:2] != b"\xff\xd8":
        raise UnreadableImage("damaged TIFF: a tile is not a JPEG")
    adobe = _ADOBE_SEGMENT + (b"\x01" if page.photometric == _YCBCR else b"\x00") if page.bands > 1 else b""
    tables = page.jpeg_tables[2:-2] if len(page.jpeg_tables) > 4 else b""  # noqa: PLR2004  without start and end markers
    jpeg = b"\xff\xd8" + adobe + tables + data[2:]
    try:
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(jpeg))
        if image.size[0] > shape[1] or image.size[1] > shape[0]:
            raise UnreadableImage("damaged TIFF: a tile is larger than the tile size")
        pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:
        raise UnreadableImage(f"damaged TIFF: a tile can't be decoded ({str(error)[:60]})") from None
    return pixels.reshape(*pixels.shape[:2], -1)[:, :, : shape[2]]
