"""PNG and APNG headers."""

from __future__ import annotations

from ._file_reader import FileReader
from ._header import Header, ImageFlag, UnreadableImage
from ._jpeg import exif_orientation

_BANDS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_MAX_CHUNKS = 1024  # before the image data
_MAX_SIDE = 2**31 - 1


def read_png(reader: FileReader) -> Header:
    """Read the header of a PNG and the chunks before its image data."""
    if reader.read(8, 8) != b"\0\0\0\x0dIHDR":
        raise UnreadableImage("damaged PNG: the first chunk is not IHDR")
    width, height, depth, color, compression, filtering, interlaced = reader.unpack(">IIBBBBB", 16)
    if not 0 < width <= _MAX_SIDE or not 0 < height <= _MAX_SIDE:
        raise UnreadableImage("damaged PNG: invalid width or height")
    if depth not in _DEPTHS.get(color, ()) or compression or filtering or interlaced > 1:
        raise UnreadableImage("damaged PNG: invalid pixel format")
    flags, orientation = _read_chunks(reader)
    if color == 3:  # noqa: PLR2004  PNG color type "palette"
        flags |= ImageFlag.PALETTE
    if color in {4, 6}:
        flags |= ImageFlag.ALPHA
    if interlaced:
        flags |= ImageFlag.INTERLACED
    if reader.read(reader.size - 8, 4) != b"IEND" and reader.find_last(b"IEND", 8) < 0:
        raise UnreadableImage("truncated: the PNG has no IEND chunk")
    return Header(
        format="png",
        width=width,
        height=height,
        bands=_BANDS[color],
        dtype="uint16" if depth == 16 else "uint8",  # noqa: PLR2004  bits
        orientation=orientation,
        flags=flags,
    )


def _read_chunks(reader: FileReader) -> tuple[ImageFlag, int]:
    flags, orientation, offset = ImageFlag(0), 1, 8
    for _ in range(_MAX_CHUNKS):
        (length,) = reader.unpack(">I", offset)
        name = reader.read(offset + 4, 4)
        if name == b"IDAT":
            return flags, orientation
        if name == b"acTL":
            flags |= ImageFlag.ANIMATED
        elif name == b"tRNS":
            flags |= ImageFlag.ALPHA
        elif name == b"eXIf" and length < 1 << 16:
            orientation = exif_orientation(reader.read(offset + 8, length))
        elif name == b"IEND":
            break
        offset += 12 + length
    raise UnreadableImage("damaged PNG: no image data")
