"""`decode` and `decode_windows`: the decoder is chosen from the header, for training and inference alike."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..headers import Header, ImageFlag, UnreadableImage, read_header
from . import _pillow, _raster
from ._geometry import Window, apply_orientation, fit_size, stored_size, stored_window
from ._jpeg_rows import can_cut_rows, cut_rows
from ._picture import Picture
from ._pixel_conversion import PixelConversion, to_rgb, to_uint8
from ._simplejpeg import decode_bytes, decode_file

Name = str | os.PathLike[str]
_DEFAULT_CONVERSION = PixelConversion()


def decode(
    path: Name,
    bounds: tuple[int, int],
    header: Header | None = None,
    conversion: PixelConversion = _DEFAULT_CONVERSION,
    *,
    stretch: bool = False,
) -> Picture:
    """Decode a whole image, resized to fit `bounds`, decoding as few pixels as that needs.

    Args:
        path: the file.
        bounds: width and height to fit into. Small images are enlarged.
        header: the header from an index; read from the file by default.
        conversion: conversion of samples to bytes.
        stretch: fill the bounds without keeping the aspect ratio.

    Raises:
        UnreadableImage: the file can't be decoded.
    """
    name = os.fspath(path)
    header = header or read_header(name)
    size = bounds if stretch else fit_size(header.display_size, bounds)
    pixels = _decode_whole(name, header, stored_size(size, header.orientation), conversion)
    width, height = header.display_size
    return Picture(apply_orientation(pixels, header.orientation), width, height, Window(0, 0, width, height))


def _decode_whole(path: str, header: Header, size: tuple[int, int], conversion: PixelConversion) -> NDArray[np.uint8]:
    if header.format in {"tiff", "npy"}:
        raster = _raster.open_raster(path, header, size)
        if raster is not None:
            pixels = _raster.read_resized(raster, conversion.select_bands(header.bands), size, conversion)
            return _undo_inversion(pixels, header)
    with Path(path).open("rb") as file:
        image = _pillow.open_image(file, header)
        return to_rgb(_pillow.decode_resized(image, header, size, conversion))


def decode_windows(
    path: Name,
    windows: list[Window],
    header: Header | None = None,
    conversion: PixelConversion = _DEFAULT_CONVERSION,
) -> list[Picture]:
    """Decode windows of an image at full size in one pass over the file; each result owns its memory.

    Args:
        path: the file.
        windows: parts of the image, in pixels after EXIF rotation.
        header: the header from an index; read from the file by default.
        conversion: conversion of samples to bytes.

    Raises:
        UnreadableImage: the file can't be decoded.
        UsageError: a window exceeds the image.
    """
    name = os.fspath(path)
    header = header or read_header(name)
    width, height = header.display_size
    for window in windows:
        if not (0 <= window.left < window.right <= width and 0 <= window.top < window.bottom <= height):
            raise UsageError(f"window {tuple(window)} is not inside the {width}×{height} image", "clip the window")
    parts = _decode_parts(name, header, [stored_window(window, header) for window in windows], conversion)
    return [
        Picture(apply_orientation(part, header.orientation), width, height, window)
        for part, window in zip(parts, windows, strict=True)
    ]


def _decode_parts(
    path: str, header: Header, windows: list[Window], conversion: PixelConversion
) -> list[NDArray[np.uint8]]:
    if header.format in {"tiff", "npy"}:
        raster = _raster.open_raster(path, header)
        if raster is not None:
            parts = _raster.read_windows(raster, conversion.select_bands(header.bands), windows, conversion)
            return [_undo_inversion(part, header) for part in parts]
    if header.format == "jpeg" and not header.flags & ImageFlag.CMYK:
        jpeg_parts = _decode_jpeg_parts(path, header, windows)
        if jpeg_parts is not None:
            return [to_rgb(to_uint8(part, conversion.levels)) for part in jpeg_parts]
    with Path(path).open("rb") as file:
        image = _pillow.open_image(file, header)
        return [to_rgb(part) for part in _pillow.decode_crops(image, windows, conversion)]


def _decode_jpeg_parts(path: str, header: Header, windows: list[Window]) -> list[NDArray[np.uint8]] | None:
    """Decode windows by their rows, or crop them from the whole JPEG; None leaves the file to Pillow."""
    gray = header.bands == 1
    if can_cut_rows(header):
        try:
            return _decode_by_rows(path, header, windows, gray=gray)
        except UnreadableImage:
            pass  # the restart markers are wrong: decode the whole image
    whole = decode_file(path, gray=gray)
    if whole is None:
        return None
    if whole.shape[:2] != (header.height, header.width):
        raise UnreadableImage("changed since it was indexed")
    return [whole[top:bottom, left:right].copy() for left, top, right, bottom in windows]


def _decode_by_rows(path: str, header: Header, windows: list[Window], *, gray: bool) -> list[NDArray[np.uint8]]:
    """Decode windows one after another; consecutive windows with the same rows share one decoding."""
    parts: list[NDArray[np.uint8]] = []
    rows: NDArray[np.uint8] | None = None
    decoded = (0, 0)
    for left, top, right, bottom in windows:
        if rows is None or (top, bottom) != decoded:
            rows = None  # free the old rows before new ones are decoded
            rows, decoded = _decode_rows(path, header, (top, bottom), gray=gray), (top, bottom)
        parts.append(rows[:, left:right].copy())
    return parts


def _decode_rows(path: str, header: Header, row_range: tuple[int, int], *, gray: bool) -> NDArray[np.uint8]:
    strip = cut_rows(path, header, *row_range)
    pixels = decode_bytes(strip.data, gray=gray)
    if pixels is None:
        strip_header = Header(format="jpeg", width=header.width, height=strip.rows, bands=header.bands)
        image = _pillow.open_image(io.BytesIO(strip.data), strip_header)
        _pillow.load_pixels(image)
        pixels = np.asarray(image)
    return pixels[row_range[0] - strip.top : row_range[1] - strip.top]


def _undo_inversion(pixels: NDArray[np.uint8], header: Header) -> NDArray[np.uint8]:
    """Invert the pixels of a TIFF in which zero is white."""
    return 255 - pixels if header.flags & ImageFlag.INVERTED else pixels
