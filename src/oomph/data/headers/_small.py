"""WebP, BMP, GIF and numpy's .npy: formats whose header is a few numbers."""

from __future__ import annotations

import ast
import math

from ._header import Flag, Header, UnreadableImage
from ._jpeg import orientation
from ._reader import Reader

_CHUNKS = 256
_LONGEST_NPY = 64 * 1024
_DTYPES = {
    f"{kind}{width}": f"{name}{8 * width}"
    for kind, name, widths in (("u", "uint", (1, 2, 4)), ("i", "int", (1, 2, 4)), ("f", "float", (2, 4, 8)))
    for width in widths
}


def read_webp(reader: Reader) -> Header:
    """The header of a WebP, plain or extended."""
    (length,) = reader.unpack("<I", 4)
    if length + 8 > reader.size:
        raise UnreadableImage("truncated: the WebP says that it is longer than its file")
    name = reader.at(12, 4)
    flags, turned = Flag(0), 1
    if name == b"VP8X":
        bits = reader.at(20, 1)[0]
        width, height = (int.from_bytes(reader.at(at, 3), "little") + 1 for at in (24, 27))
        flags |= (Flag.ALPHA if bits & 16 else Flag(0)) | (Flag.ANIMATED if bits & 2 else Flag(0))
        turned = _webp_exif(reader) if bits & 8 else 1
    elif name == b"VP8L":
        (bits,) = reader.unpack("<I", 21)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        flags |= Flag.ALPHA if bits >> 28 & 1 else Flag(0)
    elif name == b"VP8 ":
        width, height = (side & 0x3FFF for side in reader.unpack("<HH", 26))
    else:
        raise UnreadableImage("broken WebP: a kind of picture that doesn't exist")
    if not width or not height:
        raise UnreadableImage("broken WebP: a side of zero pixels")
    bands = 4 if flags & Flag.ALPHA else 3
    return Header(format="webp", width=width, height=height, bands=bands, flags=flags, orientation=turned)


def _webp_exif(reader: Reader) -> int:
    offset = 12
    for _ in range(_CHUNKS):
        if offset + 8 > reader.size:
            break
        (length,) = reader.unpack("<I", offset + 4)
        if reader.at(offset, 4) == b"EXIF" and length < 1 << 16:
            return orientation(reader.at(offset + 8, length).removeprefix(b"Exif\0\0"))
        offset += 8 + length + (length & 1)
    return 1


def read_bmp(reader: Reader) -> Header:
    """The header of a Windows bitmap."""
    start, size = reader.unpack("<II", 10)
    if size == 12:  # noqa: PLR2004  OS/2's
        width, height, _, bits = reader.unpack("<HHHH", 18)
        squeeze = 0
    else:
        width, height, _, bits, squeeze = reader.unpack("<iiHHI", 18)
    height = abs(height)
    if width <= 0 or not height or bits not in {1, 4, 8, 16, 24, 32} or squeeze > 6:  # noqa: PLR2004
        raise UnreadableImage("broken BMP: pixels or sides that don't exist")
    if squeeze in {0, 3, 6} and start + (width * bits + 31) // 32 * 4 * height > reader.size:
        raise UnreadableImage("truncated: the BMP ends before its last row")
    flags = Flag.PALETTE if bits <= 8 else Flag.ALPHA if bits == 32 else Flag(0)  # noqa: PLR2004
    bands = 1 if bits <= 8 else 4 if bits == 32 else 3  # noqa: PLR2004
    return Header(format="bmp", width=width, height=height, bands=bands, flags=flags)


def read_gif(reader: Reader) -> Header:
    """The header of a GIF; a second picture in it makes it animated."""
    width, height, packed = reader.unpack("<HHB", 6)
    if not width or not height:
        raise UnreadableImage("broken GIF: a side of zero pixels")
    offset = 13 + (3 << (packed & 7) + 1 if packed & 128 else 0)
    flags, pictures = Flag.PALETTE, 0
    while pictures < 2:  # noqa: PLR2004  more need not be counted
        (kind,) = reader.at(offset, 1)
        if kind == 0x3B:  # noqa: PLR2004  the end
            break
        if kind == 0x2C:  # noqa: PLR2004  a picture
            pictures += 1
            local = reader.at(offset + 9, 1)[0]
            offset += 10 + (3 << (local & 7) + 1 if local & 128 else 0) + 1
        elif kind == 0x21:  # noqa: PLR2004  an extension
            offset += 2
        else:
            raise UnreadableImage("broken GIF: a block that doesn't exist")
        offset = _skip_blocks(reader, offset)
    if not pictures:
        raise UnreadableImage("broken GIF: no picture in it")
    if pictures > 1:
        flags |= Flag.ANIMATED
    return Header(format="gif", width=width, height=height, bands=1, flags=flags)


def _skip_blocks(reader: Reader, offset: int) -> int:
    while length := reader.at(offset, 1)[0]:
        offset += 1 + length
    return offset + 1


def read_npy(reader: Reader) -> Header:
    """The header of a saved array of two (rows, columns) or three dimensions (bands last, or first when few)."""
    major = reader.at(6, 1)[0]
    if major not in {1, 2, 3}:
        raise UnreadableImage("broken .npy: a version that doesn't exist")
    layout, start = ("<H", 10) if major == 1 else ("<I", 12)
    (length,) = reader.unpack(layout, 8)
    if length > _LONGEST_NPY:
        raise UnreadableImage("broken .npy: a header of absurd length")
    order, fortran, shape = _npy_fields(reader.at(start, length))
    dtype = _DTYPES.get(order[1:])
    if dtype is None or order[0] not in "<>|=":
        raise UnreadableImage(f"an array of type {order[:20]!r}, which is no image's")
    if len(shape) not in {2, 3} or min(shape) <= 0 or max(shape) >= 1 << 31:
        raise UnreadableImage("an array whose shape is no image's: rows, columns and perhaps bands")
    if start + length + math.prod(shape) * int(order[2:]) > reader.size:
        raise UnreadableImage("truncated: the array is longer than its file")
    first = len(shape) == 3 and shape[0] <= 16 < min(shape[1:])  # noqa: PLR2004  bands first, as torch has them
    bands = 1 if len(shape) == 2 else shape[0] if first else shape[2]  # noqa: PLR2004  dimensions
    height, width = shape[1:] if first else shape[:2]
    if bands >= 1 << 16:
        raise UnreadableImage("an array whose shape is no image's: rows, columns and perhaps bands")
    flags = Flag.TILED | (Flag.FORTRAN if fortran else Flag(0)) | (Flag.PLANAR if first else Flag(0))
    return Header(format="npy", width=width, height=height, bands=bands, dtype=dtype, flags=flags, block_height=1)


def _npy_fields(text: bytes) -> tuple[str, bool, tuple[int, ...]]:
    try:
        fields = ast.literal_eval(text.decode("latin1").strip())
        order, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
        raise UnreadableImage("broken .npy: its header can't be read") from None
    if not isinstance(order, str) or len(order) < 3 or not isinstance(shape, tuple):  # noqa: PLR2004  such as <u1
        raise UnreadableImage("broken .npy: its header can't be read")
    if not all(type(side) is int for side in shape):
        raise UnreadableImage("broken .npy: its header can't be read")
    return order, bool(fortran), shape
