"""Files that are slow to cut, written once in a form that isn't: tiles for strips, restart markers for other JPEGs."""

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
from .decoding import Raster, Window, raster_of
from .headers import Header, UnreadableImage, read_header

_TILE = 256
_SHORT, _LONG8 = 3, 16
_DEFLATE, _HORIZONTAL = 8, 2
_FORMATS = {"u": 1, "i": 2, "f": 3}
Name = str | os.PathLike[str]


def transcode(source: Name, target: Name) -> Path:
    """Write a copy of an image whose windows can be read alone, whole or not at all.

    A TIFF or .npy becomes a TIFF of tiles, lossless and a band at a time, so that memory stays small. A JPEG becomes a
    baseline one with a restart marker in every row; its coefficients are computed anew with the same tables, which
    costs next to nothing in quality, and the whole image in memory once.

    Raises:
        UsageError: windows of this format can't be made readable alone.
        Broken: the file can't be decoded.
    """
    name, place = os.fspath(source), Path(target)
    header = read_header(name)
    raster = raster_of(name, header) if header.format in {"tiff", "npy"} else None
    if raster is None and header.format != "jpeg":
        raise UsageError(f"a {header.format} file can't be cut faster in any form", "save it as a JPEG or TIFF")
    write_atomically(
        place, lambda file: _write_jpeg(file, name) if raster is None else _write_tiles(file, raster, header)
    )
    return place


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


def _write_tiles(file: IO[bytes], raster: Raster, header: Header) -> None:
    """A BigTIFF: its tiles row by row, then the directory that says where they are."""
    file.write(struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0))
    offsets, counts = [], []
    dtype = np.dtype(header.dtype)
    bands = tuple(range(header.bands))
    for top in range(0, raster.height, _TILE):
        bottom = min(top + _TILE, raster.height)
        band = raster.read(Window(0, top, raster.width, bottom), bands).astype(dtype.newbyteorder("<"), copy=False)
        for left in range(0, raster.width, _TILE):
            part = band[:, left : left + _TILE]
            tile = np.zeros((_TILE, _TILE, header.bands), band.dtype)
            tile[: part.shape[0], : part.shape[1]] = part
            data = zlib.compress(_differences(tile).tobytes(), 3)
            offsets.append(file.tell())
            counts.append(len(data))
            file.write(data)
    _write_directory(file, header, offsets, counts)


def _differences(tile: NDArray[Any]) -> NDArray[Any]:
    """Each sample less its left neighbour, which packs better; fractions stay as they are."""
    if tile.dtype.kind == "f":
        return tile
    return np.concatenate([tile[:, :1], np.subtract(tile[:, 1:], tile[:, :-1], dtype=tile.dtype)], axis=1)


def _write_directory(file: IO[bytes], header: Header, offsets: list[int], counts: list[int]) -> None:
    dtype = np.dtype(header.dtype)
    colour = header.bands >= 3 and dtype.itemsize <= 2  # noqa: PLR2004  three bands of 8 or 16 bits
    extra = header.bands - (3 if colour else 1)
    tags: dict[int, tuple[int, list[int]]] = {
        256: (_LONG8, [header.width]),
        257: (_LONG8, [header.height]),
        258: (_SHORT, [8 * dtype.itemsize] * header.bands),
        259: (_SHORT, [_DEFLATE]),
        262: (_SHORT, [2 if colour else 1]),
        277: (_SHORT, [header.bands]),
        284: (_SHORT, [1]),
        317: (_SHORT, [1 if dtype.kind == "f" else _HORIZONTAL]),
        322: (_SHORT, [_TILE]),
        323: (_SHORT, [_TILE]),
        324: (_LONG8, offsets),
        325: (_LONG8, counts),
        **({338: (_SHORT, [0] * extra)} if extra else {}),
        339: (_SHORT, [_FORMATS[dtype.kind]] * header.bands),
    }
    entries = []
    for tag, (kind, values) in tags.items():
        data = struct.pack(f"<{len(values)}{'H' if kind == _SHORT else 'Q'}", *values)
        if len(data) > 8:  # noqa: PLR2004  what fits into an entry
            place = file.tell()
            file.write(data)
            data = struct.pack("<Q", place)
        entries.append(struct.pack("<HHQ", tag, kind, len(values)) + data.ljust(8, b"\0"))
    start = file.tell()
    file.write(struct.pack("<Q", len(entries)) + b"".join(entries) + struct.pack("<Q", 0))
    file.seek(8)
    file.write(struct.pack("<Q", start))
