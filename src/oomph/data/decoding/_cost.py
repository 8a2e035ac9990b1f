"""Upper bounds of the memory that decoding needs, computed from the header before anything is allocated.

tests/data/decoding compares every bound with measured memory.
"""

from __future__ import annotations

import numpy as np

from ..headers import Header, ImageFlag
from ._geometry import Window, stored_size, stored_window
from ._jpeg_rows import can_cut_rows, restart_row_period
from ._pillow import pixel_bytes
from ._simplejpeg import load_simplejpeg
from ._tiff_blocks import can_decompress

_BASE_BYTES = 1024 * 1024  # buffers of files and decoders
_LIBJPEG_ROWS = 64  # rows that libjpeg keeps in addition
_WEBP_PIXEL_BYTES = 20  # two canvases, the output bytes, Pillow's image, and the planes of libwebp
_RESULT_PIXEL_BYTES = 14  # resized, as bytes, as an array, rotated
_RASTER_BAND_ROWS = 64
_STRIP_BASE_BYTES = 8 * 1024 * 1024
_UNCOMPRESSED = 1


def decode_cost(header: Header, size: tuple[int, int]) -> int:
    """Return the peak bytes for decoding a whole image to a (width, height) after EXIF rotation."""
    width, height = stored_size(size, header.orientation)
    result = width * height * _RESULT_PIXEL_BYTES
    if _is_raster(header):
        return _BASE_BYTES + result + _raster_bytes(header, (width, height))
    source, source_rows = _pillow_bytes(header, (width, height))
    return _BASE_BYTES + result + source + width * source_rows * 4


def _pillow_bytes(header: Header, size: tuple[int, int]) -> tuple[int, int]:
    """Return the bytes that Pillow holds of the source image, and the rows that it resizes from."""
    if header.format == "jpeg":
        scale = _jpeg_scale(header, size)
        width, height = -(-header.width // scale), -(-header.height // scale)
        buffers = header.coefficient_bytes + header.width * header.bands * _LIBJPEG_ROWS
        return width * height * pixel_bytes(header) + buffers, height
    source = header.pixel_count * pixel_bytes(header)
    if header.format == "webp":
        source = header.pixel_count * _WEBP_PIXEL_BYTES + header.file_size
    elif header.format == "tiff":
        samples = header.pixel_count * header.bands * np.dtype(header.dtype).itemsize
        source = samples * 2 + header.pixel_count * 4
    elif header.format == "gif":
        source = header.pixel_count * 6
    factor = max(int(min(header.width / size[0], header.height / size[1]) / 2), 1)
    # A band of rows in its own mode and in RGB, and the reduced image.
    band = header.width * 256 * 12 + -(-header.width // factor) * -(-header.height // factor) * 4
    return source + band + header.width * 64, -(-header.height // factor)


def _jpeg_scale(header: Header, size: tuple[int, int]) -> int:
    """Return the factor by which libjpeg reduces width and height."""
    largest = min(header.width // max(2 * size[0], 1), header.height // max(2 * size[1], 1))
    return next((scale for scale in (8, 4, 2) if scale <= largest), 1)


def _is_raster(header: Header) -> bool:
    if header.format != "tiff":
        return header.format == "npy"
    unsupported = ImageFlag.PALETTE | ImageFlag.CMYK | ImageFlag.PACKED
    return can_decompress(header.compression) and not header.flags & unsupported


def _raster_bytes(header: Header, size: tuple[int, int]) -> int:
    """Return the bytes of a band of rows (stored, as floats, as bytes, as RGB) and of the reduced image."""
    factor = max(int(min(header.width / size[0], header.height / size[1]) / 2), 1)
    band_rows = _RASTER_BAND_ROWS if _has_raw_rows(header) else max(header.block_height, _RASTER_BAND_ROWS)
    rows = min(band_rows, header.height) + factor
    reduced_height = -(-header.height // factor)
    reduced = -(-header.width // factor) * reduced_height * 4 + size[0] * reduced_height * 4
    return header.width * rows * _raster_pixel_bytes(header) + reduced + _block_bytes(header)


def _has_raw_rows(header: Header) -> bool:
    return header.compression == _UNCOMPRESSED and header.block_width >= header.width


def _raster_pixel_bytes(header: Header) -> int:
    """Return the bytes per pixel on the way to RGB: selected bands, floats, bytes, Pillow's copy, joined rows."""
    item_bytes = np.dtype(header.dtype).itemsize
    return 3 * item_bytes + (0 if header.dtype == "uint8" else 15) + 3 * 3 + 4


def _block_bytes(header: Header) -> int:
    """Return the bytes of a tile or strip, stored and decompressed, with its predictor undone."""
    item_bytes = np.dtype(header.dtype).itemsize
    if header.format == "npy":
        return header.width * _RASTER_BAND_ROWS * header.bands * item_bytes
    if _has_raw_rows(header):
        return 0
    return header.block_width * header.block_height * header.bands * item_bytes * 4


def has_random_access(header: Header) -> bool:
    """Return True if a window can be decoded without the rest of the image."""
    return _is_raster(header) if header.format in {"tiff", "npy"} else can_cut_rows(header)


def decode_windows_cost(header: Header, windows: list[Window]) -> int:
    """Return the peak bytes for decoding windows of an image, including the results."""
    areas = [(right - left) * (bottom - top) for left, top, right, bottom in windows]
    if _is_raster(header):
        return _BASE_BYTES + sum(areas) * 3 + max(areas) * _raster_pixel_bytes(header) + _block_bytes(header)
    return _BASE_BYTES + sum(areas) * 3 + max(areas) * 4 + _window_source_bytes(header, windows)


def _window_source_bytes(header: Header, windows: list[Window]) -> int:
    if header.format != "jpeg":
        return _pillow_bytes(header, (header.width, header.height))[0]
    each = 3 if load_simplejpeg() is not None and not header.flags & ImageFlag.CMYK else 4
    if can_cut_rows(header):
        stored = [stored_window(window, header) for window in windows]
        period_rows = restart_row_period(header) * header.block_height
        rows = max(window.bottom - window.top for window in stored) + 2 * period_rows + 2 * header.block_height
        rows = min(rows, header.height)
        strip_bytes = int(header.file_size * (rows / header.height) * 3)
        return header.width * rows * each + strip_bytes + _STRIP_BASE_BYTES
    buffers = header.coefficient_bytes + header.file_size + header.width * header.bands * _LIBJPEG_ROWS
    return header.pixel_count * each + buffers
