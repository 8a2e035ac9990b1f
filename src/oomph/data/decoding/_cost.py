"""Bytes that decoding takes, from the header alone: what a budget is asked for before anything is allocated.

Each figure is an upper bound of what the path allocates at once; tests/data hold it against measured memory.
"""

from __future__ import annotations

import numpy as np

from ..headers import Flag, Header
from ._blocks import known
from ._geometry import Window, stored_size, stored_window
from ._pillow import mode_bytes
from ._rows import can_cut, group_of
from ._turbo import turbo

_BASE = 1024 * 1024  # buffers of files and decoders
_LINES = 64  # rows that libjpeg keeps besides
_WEBP = 20  # bytes a pixel: two canvases, the bytes handed over, Pillow's image, and libwebp's own planes
_RASTER_BAND = 64


def decode_cost(header: Header, size: tuple[int, int]) -> int:
    """Bytes at once to decode a whole image to a width and height as it is seen."""
    wide, tall = stored_size(size, header.orientation)
    result = wide * tall * 14  # resized, as bytes, as an array, turned
    if header.format in {"tiff", "npy"} and _is_raster(header):
        return _BASE + result + _raster(header, (wide, tall))
    held, rows = _held(header, (wide, tall))
    return _BASE + result + held + wide * rows * 4


def _held(header: Header, size: tuple[int, int]) -> tuple[int, int]:
    """What Pillow holds of the source, and of how many rows."""
    each = mode_bytes(header)
    if header.format == "jpeg":
        scale = _scale(header, size)
        wide, tall = -(-header.width // scale), -(-header.height // scale)
        return wide * tall * each + header.coefficients + header.width * header.bands * _LINES, tall
    held = header.pixels * each
    if header.format == "webp":
        held = header.pixels * _WEBP + header.size
    elif header.format == "tiff":
        held = header.pixels * header.bands * np.dtype(header.dtype).itemsize * 2 + header.pixels * 4
    elif header.format == "gif":
        held = header.pixels * 6
    factor = max(int(min(header.width / size[0], header.height / size[1]) / 2), 1)
    # A band of rows in its own mode and in colours, and the image that they shrink to.
    band = header.width * 256 * 12 + -(-header.width // factor) * -(-header.height // factor) * 4
    return held + band + header.width * 64, -(-header.height // factor)


def _scale(header: Header, size: tuple[int, int]) -> int:
    """What libjpeg divides sides by."""
    room = min(header.width // max(2 * size[0], 1), header.height // max(2 * size[1], 1))
    return next((scale for scale in (8, 4, 2) if scale <= room), 1)


def _is_raster(header: Header) -> bool:
    if header.format == "npy":
        return True
    return known(header.compression) and not header.flags & (Flag.PALETTE | Flag.CMYK | Flag.PACKED)


def _raster(header: Header, size: tuple[int, int]) -> int:
    """A band of rows: as it is stored, as numbers, as bytes, as colours; and the image that bands shrink to."""
    factor = max(int(min(header.width / size[0], header.height / size[1]) / 2), 1)
    rows = min(max(header.block_height, _RASTER_BAND), header.height) + factor
    if header.compression == 1 and header.block_width >= header.width:
        rows = min(_RASTER_BAND, header.height) + factor
    small = -(-header.width // factor) * -(-header.height // factor) * 4 + size[0] * -(-header.height // factor) * 4
    return header.width * rows * _sample_bytes(header) + small + _block(header)


def _sample_bytes(header: Header) -> int:
    """Bytes of a pixel on its way to colours: chosen bands, fractions in between, bytes, Pillow's copy, joined rows."""
    item = np.dtype(header.dtype).itemsize
    return 3 * item + (0 if header.dtype == "uint8" else 15) + 3 * 3 + 4


def _block(header: Header) -> int:
    """A tile or strip as it is stored and unpacked, with its predictor undone."""
    if header.format == "npy":
        return header.width * _RASTER_BAND * header.bands * np.dtype(header.dtype).itemsize
    if header.compression == 1 and header.block_width >= header.width:
        return 0
    return header.block_width * header.block_height * header.bands * np.dtype(header.dtype).itemsize * 4


def has_random_access(header: Header) -> bool:
    """Whether a window can be read without the rest of the image: by tiles, strips, rows or mapped."""
    if header.format in {"tiff", "npy"}:
        return _is_raster(header)
    return can_cut(header)


def decode_windows_cost(header: Header, windows: list[Window]) -> int:
    """Bytes at once to cut windows out of an image, the results included."""
    results = sum((right - left) * (bottom - top) * 3 for left, top, right, bottom in windows)
    largest = max((right - left) * (bottom - top) for left, top, right, bottom in windows)
    if header.format in {"tiff", "npy"} and _is_raster(header):
        return _BASE + results + largest * _sample_bytes(header) + _block(header)
    return _BASE + results + largest * 4 + _source(header, windows)


def _source(header: Header, windows: list[Window]) -> int:
    if header.format != "jpeg":
        held, _ = _held(header, (header.width, header.height))
        return held
    each = 3 if turbo() is not None and not header.flags & Flag.CMYK else 4
    if can_cut(header):
        own = [stored_window(window, header) for window in windows]
        step = group_of(header) * header.block_height
        rows = max(window.bottom - window.top for window in own) + 2 * step + 2 * header.block_height
        rows = min(rows, header.height)
        share = rows / header.height
        return header.width * rows * each + int(header.size * share * 3) + 8 * 1024 * 1024
    return header.pixels * each + header.coefficients + header.size + header.width * header.bands * _LINES
