"""`read_header`: detects the format from the first bytes of a file, not from its name."""

from __future__ import annotations

import dataclasses
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from ._file_reader import FileReader
from ._header import Header, ImageFlag, UnreadableImage
from ._jpeg import read_jpeg
from ._other_formats import read_bmp, read_gif, read_npy, read_webp
from ._png import read_png
from ._tiff import read_tiff

_SUFFIXES_BY_FORMAT: dict[str, tuple[str, ...]] = {
    "jpeg": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "png": (".png", ".apng"),
    "webp": (".webp",),
    "bmp": (".bmp", ".dib"),
    "gif": (".gif",),
    "tiff": (".tif", ".tiff", ".gtiff", ".btf", ".svs"),
    "npy": (".npy",),
}
SUFFIXES = frozenset(suffix for suffixes in _SUFFIXES_BY_FORMAT.values() for suffix in suffixes)
_SIGNATURES: tuple[tuple[bytes, int, Callable[[FileReader], Header]], ...] = (
    (b"\xff\xd8\xff", 0, read_jpeg),
    (b"\x89PNG\r\n\x1a\n", 0, read_png),
    (b"WEBP", 8, read_webp),
    (b"II*\0", 0, read_tiff),
    (b"MM\0*", 0, read_tiff),
    (b"II+\0", 0, read_tiff),
    (b"MM\0+", 0, read_tiff),
    (b"GIF87a", 0, read_gif),
    (b"GIF89a", 0, read_gif),
    (b"\x93NUMPY", 0, read_npy),
    (b"BM", 0, read_bmp),
)
_UNSUPPORTED_SIGNATURES = (
    (b"ftypheic", 4, "HEIC"), (b"ftypmif1", 4, "HEIF"), (b"ftypavif", 4, "AVIF"), (b"%PDF", 0, "PDF"),
    (b"\0\0\0\x0cjP  ", 0, "JPEG 2000"), (b"8BPS", 0, "Photoshop"), (b"<svg", 0, "SVG"), (b"<!DO", 0, "HTML"),
    (b"<htm", 0, "HTML"), (b"version https://git-lfs", 0, "Git LFS"),
)  # fmt: skip
_MIN_FILE_BYTES = 12  # every header is longer


def read_header(path: str) -> Header:
    """Read the header of an image file without decoding pixels.

    Raises:
        UnreadableImage: the file is not an image that can be used; `why` is the reason.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  called for every image of an index
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImage("a folder, not a file" if stat.S_ISDIR(status.st_mode) else "not a regular file")
        with FileReader.open(path) as reader:
            header = _read(reader)
    except OSError as error:
        raise UnreadableImage(
            f"can't be read: {error.strerror or error}", "check the permissions of the file and its disk"
        ) from None
    except (ValueError, struct.error, OverflowError):
        raise UnreadableImage("damaged: invalid header") from None
    matches = Path(path).suffix.lower() in _SUFFIXES_BY_FORMAT[header.format]
    flags = header.flags if matches else header.flags | ImageFlag.MISNAMED
    return dataclasses.replace(header, flags=flags, file_size=status.st_size, mtime_ns=status.st_mtime_ns)


def _read(reader: FileReader) -> Header:
    if not reader.size:
        raise UnreadableImage("empty: zero bytes")
    if reader.size < _MIN_FILE_BYTES:
        raise UnreadableImage(f"truncated: only {reader.size} bytes")
    start = reader.read(0, min(reader.size, 64))
    for signature, offset, parse in _SIGNATURES:
        if start.startswith(signature, offset):
            return parse(reader)
    for signature, offset, name in _UNSUPPORTED_SIGNATURES:
        if start.startswith(signature, offset):
            raise UnreadableImage(f"unsupported format: {name}", "convert it to JPEG, PNG or TIFF")
    raise UnreadableImage("not an image: unknown file signature")
