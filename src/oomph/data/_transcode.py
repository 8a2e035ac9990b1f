"""`transcode`: rewrites an image so that its windows can be decoded separately."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import JpegImagePlugin

from ..errors import UsageError
from ..files import write_atomically
from .decoding import Raster, Window, open_raster
from .headers import Header, UnreadableImage, read_header

_TILE_SIDE = 256
# TIFF numbers
_SHORT, _LONG8 = 3, 16
_BIGTIFF_VERSION, _DEFLATE, _HORIZONTAL_PREDICTOR = 43, 8, 2
_SAMPLE_FORMATS = {"u": 1, "i": 2, "f": 3}
_INLINE_BYTES = 8  # of a BigTIFF directory entry
Name = str | os.PathLike[str]


def transcode(source: Name, target: Name) -> Path:
    """Write a copy of an image with separately decodable windows; the file is written atomically.

    A TIFF or .npy becomes a tiled TIFF, lossless and one row of tiles at a time, so that memory stays small. A JPEG
    becomes a baseline JPEG with a restart marker in every row. It is decoded once and encoded again with the same
    tables, so the loss of quality is negligible, and the whole image is in memory once.

    Raises:
        UsageError: the format has no form in which windows can be decoded separately.
        UnreadableImage: the file can't be decoded.
    """
    name, path = os.fspath(source), Path(target)
    header = read_header(name)
    raster = open_raster(name, header) if header.format in {"tiff", "npy"} else None
    if raster is None and header.format != "jpeg":
        raise UsageError(
            f"windows of a {header.format} file can't be decoded separately", "save it as JPEG or TIFF first"
        )
    write_atomically(
        path, lambda file: _write_jpeg(file, name) if raster is None else _write_tiff(file, raster, header)
    )
    return path


def _write_jpeg(file: IO[bytes], source: str) -> None:
    try:
        with Path(source).open("rb") as opened:
            image = JpegImagePlugin.JpegImageFile(opened)
            exif = image.info.get("exif", b"")
            image.save(file, "JPEG", quality="keep", progressive=False, restart_marker_rows=1, exif=exif)
    except (OSError, ValueError, SyntaxError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UnreadableImage(f"can't be decoded: {error}") from None


def _write_tiff(file: IO[bytes], raster: Raster, header: Header) -> None:
    """Write a BigTIFF: the tiles row by row, then the directory."""
    file.write(struct.pack("<2sHHHQ", b"II", _BIGTIFF_VERSION, 8, 0, 0))
    offsets, byte_counts = [], []
    dtype = np.dtype(header.dtype).newbyteorder("<")
    bands = tuple(range(header.bands))
    for top in range(0, raster.height, _TILE_SIDE):
        bottom = min(top + _TILE_SIDE, raster.height)
        rows = raster.read(Window(0, top, raster.width, bottom), bands).astype(dtype, copy=False)
        for left in range(0, raster.width, _TILE_SIDE):
            part = rows[:, left : left + _TILE_SIDE]
            tile = np.zeros((_TILE_SIDE, _TILE_SIDE, header.bands), rows.dtype)
            tile[: part.shape[0], : part.shape[1]] = part
            data = zlib.compress(_apply_predictor(tile).tobytes(), 3)
            offsets.append(file.tell())
            byte_counts.append(len(data))
            file.write(data)
    _write_directory(file, header, offsets, byte_counts)


def _apply_predictor(tile: NDArray[Any]) -> NDArray[Any]:
    """Replace samples by the difference to their left neighbor, which compresses better; floats are unchanged."""
    if tile.dtype.kind == "f":
        return tile
    return np.concatenate([tile[:, :1], np.subtract(tile[:, 1:], tile[:, :-1], dtype=tile.dtype)], axis=1)


def _write_directory(file: IO[bytes], header: Header, offsets: list[int], byte_counts: list[int]) -> None:
    dtype = np.dtype(header.dtype)
    is_color = header.bands >= 3 and dtype.itemsize <= 2  # noqa: PLR2004  three bands of 8 or 16 bits
    extra_bands = header.bands - (3 if is_color else 1)
    tags: dict[int, tuple[int, list[int]]] = {
        256: (_LONG8, [header.width]),
        257: (_LONG8, [header.height]),
        258: (_SHORT, [8 * dtype.itemsize] * header.bands),
        259: (_SHORT, [_DEFLATE]),
        262: (_SHORT, [2 if is_color else 1]),
        277: (_SHORT, [header.bands]),
        284: (_SHORT, [1]),
        317: (_SHORT, [1 if dtype.kind == "f" else _HORIZONTAL_PREDICTOR]),
        322: (_SHORT, [_TILE_SIDE]),
        323: (_SHORT, [_TILE_SIDE]),
        324: (_LONG8, offsets),
        325: (_LONG8, byte_counts),
        **({338: (_SHORT, [0] * extra_bands)} if extra_bands else {}),
        339: (_SHORT, [_SAMPLE_FORMATS[dtype.kind]] * header.bands),
    }
    entries = []
    for tag, (kind, values) in tags.items():
        data = struct.pack(f"<{len(values)}{'H' if kind == _SHORT else 'Q'}", *values)
        if len(data) > _INLINE_BYTES:
            position = file.tell()
            file.write(data)
            data = struct.pack("<Q", position)
        entries.append(struct.pack("<HHQ", tag, kind, len(values)) + data.ljust(_INLINE_BYTES, b"\0"))
    start = file.tell()
    file.write(struct.pack("<Q", len(entries)) + b"".join(entries) + struct.pack("<Q", 0))
    file.seek(8)
    file.write(struct.pack("<Q", start))
