"""PNG and APNG."""

from __future__ import annotations

from ._header import Flag, Header, UnreadableImage
from ._jpeg import orientation
from ._reader import Reader

_BANDS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_CHUNKS = 1024  # before the picture's data
_LONGEST = 2**31 - 1


def read_png(reader: Reader) -> Header:
    """The header of a PNG and the chunks before its data."""
    if reader.at(8, 8) != b"\0\0\0\x0dIHDR":
        raise UnreadableImage("broken PNG: its first chunk is not the header")
    width, height, depth, colour, squeeze, filtering, interlaced = reader.unpack(">IIBBBBB", 16)
    if not 0 < width <= _LONGEST or not 0 < height <= _LONGEST:
        raise UnreadableImage("broken PNG: a side of zero pixels or of billions")
    if depth not in _DEPTHS.get(colour, ()) or squeeze or filtering or interlaced > 1:
        raise UnreadableImage("broken PNG: a kind of pixels that doesn't exist")
    flags, turned = _chunks(reader)
    if colour == 3:  # noqa: PLR2004  PNG's number
        flags |= Flag.PALETTE
    if colour in {4, 6}:
        flags |= Flag.ALPHA
    if interlaced:
        flags |= Flag.INTERLACED
    if reader.at(reader.size - 8, 4) != b"IEND" and reader.find_last(b"IEND", 8) < 0:
        raise UnreadableImage("truncated: the PNG has no end")
    return Header(
        format="png",
        width=width,
        height=height,
        bands=_BANDS[colour],
        dtype="uint16" if depth == 16 else "uint8",  # noqa: PLR2004  bits
        orientation=turned,
        flags=flags,
    )


def _chunks(reader: Reader) -> tuple[Flag, int]:
    flags, turned, offset = Flag(0), 1, 8
    for _ in range(_CHUNKS):
        (length,) = reader.unpack(">I", offset)
        name = reader.at(offset + 4, 4)
        if name == b"IDAT":
            return flags, turned
        if name == b"acTL":
            flags |= Flag.ANIMATED
        elif name == b"tRNS":
            flags |= Flag.ALPHA
        elif name == b"eXIf" and length < 1 << 16:
            turned = orientation(reader.at(offset + 8, length))
        elif name == b"IEND":
            break
        offset += 12 + length
    raise UnreadableImage("broken PNG: no picture in it")
