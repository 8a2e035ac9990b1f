"""WebP, BMP, GIF and NumPy .npy headers."""

from __future__ import annotations

import ast
import math

from ._file_reader import FileReader
from ._header import Header, ImageFlag, UnreadableImage
from ._jpeg import exif_orientation

_MAX_WEBP_CHUNKS = 256
_MAX_NPY_HEADER_BYTES = 64 * 1024
_MAX_LEADING_BANDS = 16  # a first axis up to this length is taken for bands
_NPY_DTYPES = {
    f"{kind}{width}": f"{name}{8 * width}"
    for kind, name, widths in (("u", "uint", (1, 2, 4)), ("i", "int", (1, 2, 4)), ("f", "float", (2, 4, 8)))
    for width in widths
}


def read_webp(reader: FileReader) -> Header:
    """Read the header of a simple or extended WebP."""
    (length,) = reader.unpack("<I", 4)
    if length + 8 > reader.size:
        raise UnreadableImage("truncated: the WebP is shorter than its header says")
    name = reader.read(12, 4)
    flags, orientation = ImageFlag(0), 1
    if name == b"VP8X":
        bits = reader.read(20, 1)[0]
        width, height = (int.from_bytes(reader.read(offset, 3), "little") + 1 for offset in (24, 27))
        flags |= ImageFlag.ALPHA if bits & 16 else ImageFlag(0)
        flags |= ImageFlag.ANIMATED if bits & 2 else ImageFlag(0)
        orientation = _webp_orientation(reader) if bits & 8 else 1
    elif name == b"VP8L":
        (bits,) = reader.unpack("<I", 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        flags |= ImageFlag.ALPHA if bits >> 28 & 1 else ImageFlag(0)
    elif name == b"VP8 ":
        width, height = (side & 0x3FFF for side in reader.unpack("<HH", 26))
    else:
        raise UnreadableImage("damaged WebP: unknown image chunk")
    if not width or not height:
        raise UnreadableImage("damaged WebP: zero width or height")
    bands = 4 if flags & ImageFlag.ALPHA else 3
    return Header(format="webp", width=width, height=height, bands=bands, flags=flags, orientation=orientation)


def _webp_orientation(reader: FileReader) -> int:
    offset = 12
    for _ in range(_MAX_WEBP_CHUNKS):
        if offset + 8 > reader.size:
            break
        (length,) = reader.unpack("<I", offset + 4)
        if reader.read(offset, 4) == b"EXIF" and length < 1 << 16:
            return exif_orientation(reader.read(offset + 8, length).removeprefix(b"Exif\0\0"))
        offset += 8 + length + (length & 1)
    return 1


def read_bmp(reader: FileReader) -> Header:
    """Read the header of a Windows bitmap."""
    start, size = reader.unpack("<II", 10)
    if size == 12:  # noqa: PLR2004  the OS/2 header
        width, height, _, bits = reader.unpack("<HHHH", 18)
        compression = 0
    else:
        width, height, _, bits, compression = reader.unpack("<iiHHI", 18)
    height = abs(height)
    if width <= 0 or not height or bits not in {1, 4, 8, 16, 24, 32} or compression > 6:  # noqa: PLR2004
        raise UnreadableImage("damaged BMP: invalid size or pixel format")
    if compression in {0, 3, 6} and start + (width * bits + 31) // 32 * 4 * height > reader.size:
        raise UnreadableImage("truncated: the BMP ends before its last row")
    flags = ImageFlag.PALETTE if bits <= 8 else ImageFlag.ALPHA if bits == 32 else ImageFlag(0)  # noqa: PLR2004
    bands = 1 if bits <= 8 else 4 if bits == 32 else 3  # noqa: PLR2004
    return Header(format="bmp", width=width, height=height, bands=bands, flags=flags)


def read_gif(reader: FileReader) -> Header:
    """Read the header of a GIF; it is animated if it has a second frame."""
    width, height, packed = reader.unpack("<HHB", 6)
    if not width or not height:
        raise UnreadableImage("damaged GIF: zero width or height")
    offset = 13 + (3 << (packed & 7) + 1 if packed & 128 else 0)
    flags, frames = ImageFlag.PALETTE, 0
    while frames < 2:  # noqa: PLR2004  enough to know that it is animated
        (kind,) = reader.read(offset, 1)
        if kind == 0x3B:  # noqa: PLR2004  trailer
            break
        if kind == 0x2C:  # noqa: PLR2004  image descriptor
            frames += 1
            packed = reader.read(offset + 9, 1)[0]
            offset += 10 + (3 << (packed & 7) + 1 if packed & 128 else 0) + 1
        elif kind == 0x21:  # noqa: PLR2004  extension
            offset += 2
        else:
            raise UnreadableImage("damaged GIF: unknown block")
        offset = _skip_blocks(reader, offset)
    if not frames:
        raise UnreadableImage("damaged GIF: no image data")
    if frames > 1:
        flags |= ImageFlag.ANIMATED
    return Header(format="gif", width=width, height=height, bands=1, flags=flags)


def _skip_blocks(reader: FileReader, offset: int) -> int:
    while length := reader.read(offset, 1)[0]:
        offset += 1 + length
    return offset + 1


def read_npy(reader: FileReader) -> Header:
    """Read the header of a .npy array: rows and columns, with bands last, or first if there are few of them."""
    major = reader.read(6, 1)[0]
    if major not in {1, 2, 3}:
        raise UnreadableImage("damaged .npy: unknown version")
    layout, start = ("<H", 10) if major == 1 else ("<I", 12)
    (length,) = reader.unpack(layout, 8)
    if length > _MAX_NPY_HEADER_BYTES:
        raise UnreadableImage("damaged .npy: the header is too long")
    descr, fortran, shape = _npy_fields(reader.read(start, length))
    dtype = _NPY_DTYPES.get(descr[1:])
    if dtype is None or descr[0] not in "<>|=":
        raise UnreadableImage(f"not an image: a .npy array of type {descr[:20]!r}")
    if len(shape) not in {2, 3} or min(shape) <= 0 or max(shape) >= 1 << 31:
        raise UnreadableImage("not an image: the .npy array does not have 2 or 3 dimensions of valid length")
    if start + length + math.prod(shape) * int(descr[2:]) > reader.size:
        raise UnreadableImage("truncated: the .npy array is longer than its file")
    bands_first = len(shape) == 3 and shape[0] <= _MAX_LEADING_BANDS < min(shape[1:])  # noqa: PLR2004  dimensions
    bands = 1 if len(shape) == 2 else shape[0] if bands_first else shape[2]  # noqa: PLR2004  dimensions
    height, width = shape[1:] if bands_first else shape[:2]
    if bands >= 1 << 16:
        raise UnreadableImage("not an image: the .npy array has too many bands")
    flags = ImageFlag.TILED
    flags |= ImageFlag.FORTRAN if fortran else ImageFlag(0)
    flags |= ImageFlag.PLANAR if bands_first else ImageFlag(0)
    return Header(format="npy", width=width, height=height, bands=bands, dtype=dtype, flags=flags, block_height=1)


def _npy_fields(text: bytes) -> tuple[str, bool, tuple[int, ...]]:
    try:
        fields = ast.literal_eval(text.decode("latin1").strip())
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
        raise UnreadableImage("damaged .npy: invalid header") from None
    if not isinstance(descr, str) or len(descr) < 3 or not isinstance(shape, tuple):  # noqa: PLR2004  such as <u1
        raise UnreadableImage("damaged .npy: invalid header")
    if not all(type(side) is int for side in shape):
        raise UnreadableImage("damaged .npy: invalid header")
    return descr, bool(fortran), shape
