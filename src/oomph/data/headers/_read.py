"""A file's header, by what it holds and not by its name."""

from __future__ import annotations

import dataclasses
import os
import stat
import struct
from collections.abc import Callable

from ._header import Flag, Header, UnreadableImage
from ._jpeg import read_jpeg
from ._png import read_png
from ._reader import Reader, suffix_of
from ._small import read_bmp, read_gif, read_npy, read_webp
from ._tiff import read_tiff

_FORMATS: dict[str, tuple[str, ...]] = {
    "jpeg": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "png": (".png", ".apng"),
    "webp": (".webp",),
    "bmp": (".bmp", ".dib"),
    "gif": (".gif",),
    "tiff": (".tif", ".tiff", ".gtiff", ".btf", ".svs"),
    "npy": (".npy",),
}
SUFFIXES = frozenset(suffix for suffixes in _FORMATS.values() for suffix in suffixes)
_MAGIC: tuple[tuple[bytes, int, Callable[[Reader], Header]], ...] = (
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
_OTHERS = (
    (b"ftypheic", 4, "HEIC"), (b"ftypmif1", 4, "HEIF"), (b"ftypavif", 4, "AVIF"), (b"%PDF", 0, "PDF"),
    (b"\0\0\0\x0cjP  ", 0, "JPEG 2000"), (b"8BPS", 0, "Photoshop"), (b"<svg", 0, "SVG"), (b"<!DO", 0, "HTML"),
    (b"<htm", 0, "HTML"), (b"version https://git-lfs", 0, "Git LFS"),
)  # fmt: skip
_SHORTEST = 12  # no format has a header as short


def read_header(path: str) -> Header:
    """Read what a file says about its image, decoding nothing.

    Raises:
        Broken: the file holds no image that can be used; `why` says the reason.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  a str in, as in the index
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableImage("not a file" if not stat.S_ISDIR(status.st_mode) else "a folder, not a file")
        with Reader.open(path) as reader:
            header = _read(reader)
    except OSError as error:
        raise UnreadableImage(f"can't be read: {error.strerror or error}", "look at its rights and its disk") from None
    except (ValueError, struct.error, OverflowError):
        raise UnreadableImage("broken: its header makes no sense") from None
    right = suffix_of(path) in _FORMATS[header.format]
    flags = header.flags if right else header.flags | Flag.MISNAMED
    return dataclasses.replace(header, flags=flags, size=status.st_size, mtime_ns=status.st_mtime_ns)


def _read(reader: Reader) -> Header:
    if not reader.size:
        raise UnreadableImage("empty: zero bytes")
    if reader.size < _SHORTEST:
        raise UnreadableImage(f"truncated: only {reader.size} bytes")
    start = reader.at(0, min(reader.size, 64))
    for magic, at, parse in _MAGIC:
        if start.startswith(magic, at):
            return parse(reader)
    for magic, at, name in _OTHERS:
        if start.startswith(magic, at):
            raise UnreadableImage(f"a {name} file, which no decoder here reads", "convert it to JPEG, PNG or TIFF")
    raise UnreadableImage("not an image: its first bytes are no format's")
