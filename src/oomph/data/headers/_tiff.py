"""TIFF and BigTIFF: where each tile or strip lies and how it is packed."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._header import Flag, Header, UnreadableImage
from ._reader import Reader

_TYPES = {1: "B", 2: "s", 3: "H", 4: "I", 6: "b", 7: "B", 8: "h", 9: "i", 11: "f", 12: "d", 16: "Q", 17: "q", 18: "Q"}
_KINDS = {1: "uint", 2: "int", 3: "float"}
_DTYPES = {"uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64"}
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIPS, _ORIENTATION, _SAMPLES, _ROWS, _STRIP_BYTES, _PLANAR = 273, 274, 277, 278, 279, 284
_PREDICTOR, _TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_BYTES = 317, 322, 323, 324, 325
_EXTRA, _FORMAT, _JPEG_TABLES, _SUBFILE = 338, 339, 347, 254
_LONG = {_STRIPS, _STRIP_BYTES, _TILES, _TILE_BYTES}
_WANTED = {
    *_LONG, _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _ORIENTATION, _SAMPLES, _ROWS, _PLANAR,
    _PREDICTOR, _TILE_WIDTH, _TILE_HEIGHT, _EXTRA, _FORMAT, _JPEG_TABLES, _SUBFILE,
}  # fmt: skip
_FEW = 64  # numbers of a tag that are read as Python's own
_ENTRIES, _PAGES, _BLOCKS = 4096, 64, 16 * 1024 * 1024
_PALETTE, _CMYK, _WHITE_IS_ZERO, _YCBCR, _JPEG = 3, 5, 0, 6, 7

Numbers = NDArray[np.int64]
Tags = dict[int, tuple[int, ...] | bytes | Numbers]


@dataclass(frozen=True, eq=False)
class Layout:
    """One picture of a TIFF.

    Attributes:
        width: columns.
        height: rows.
        bands: samples of a pixel.
        dtype: numpy's name of a sample's type.
        packed: several samples in a byte.
        order: "<" or ">", as struct writes it.
        block: width and height of a tile or strip.
        tiled: tiles rather than strips.
        planar: each band has blocks of its own, band after band.
        compression: TIFF's number.
        predictor: TIFF's number; 1 is none.
        photometric: what the samples mean.
        offsets: where the blocks lie, row by row.
        counts: how long they are.
        tables: JPEG tables that all blocks share.
        reduced: a smaller copy of another picture in the file.
        orientation: EXIF's number.
    """

    width: int
    height: int
    bands: int
    dtype: str
    packed: bool
    order: str
    block: tuple[int, int]
    tiled: bool
    planar: bool
    compression: int
    predictor: int
    photometric: int
    offsets: Numbers
    counts: Numbers
    tables: bytes
    reduced: bool
    orientation: int

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks across and down."""
        return -(-self.width // self.block[0]), -(-self.height // self.block[1])


def read_tiff(reader: Reader) -> Header:
    """The header of the first picture in a TIFF."""
    layout = read_layouts(reader, 1)[0]
    flags = Flag.TILED | (Flag.PLANAR if layout.planar else Flag(0))
    flags |= Flag.PALETTE if layout.photometric == _PALETTE else Flag(0)
    flags |= Flag.CMYK if layout.photometric == _CMYK else Flag(0)
    flags |= Flag.INVERTED if layout.photometric == _WHITE_IS_ZERO else Flag(0)
    flags |= Flag.PACKED if layout.packed or _is_subsampled(layout) else Flag(0)
    flags |= Flag.BIGENDIAN if layout.order == ">" else Flag(0)
    return Header(
        format="tiff",
        width=layout.width,
        height=layout.height,
        bands=layout.bands,
        dtype=layout.dtype,
        orientation=layout.orientation,
        flags=flags,
        block_width=layout.block[0],
        block_height=layout.block[1],
        compression=layout.compression,
    )


def _is_subsampled(layout: Layout) -> bool:
    return layout.photometric == _YCBCR and layout.compression != _JPEG


def read_layouts(reader: Reader, most: int = _PAGES) -> list[Layout]:
    """The pictures of a TIFF, the first one first."""
    order = {b"II": "<", b"MM": ">"}[reader.at(0, 2)]
    (version,) = reader.unpack(order + "H", 2)
    big = version == 43  # noqa: PLR2004  BigTIFF's version
    (offset,) = reader.unpack(order + ("Q" if big else "I"), 8 if big else 4)
    found: list[Layout] = []
    seen: set[int] = set()
    while offset and offset not in seen and len(found) < most:
        seen.add(offset)
        tags, offset = _directory(reader, offset, order, big=big)
        if found:
            try:
                found.append(_layout(reader, tags, order))
            except UnreadableImage:
                continue  # pages after the first may be masks or anything
        else:
            found.append(_layout(reader, tags, order))
    if not found:
        raise UnreadableImage("broken TIFF: no picture in it")
    return found


def _directory(reader: Reader, offset: int, order: str, *, big: bool) -> tuple[Tags, int]:
    head, entry, inline = ("Q", "HHQ", 8) if big else ("H", "HHI", 4)
    (count,) = reader.unpack(order + head, offset)
    if count > _ENTRIES:
        raise UnreadableImage("broken TIFF: a directory of absurd length")
    offset += struct.calcsize(order + head)
    size = struct.calcsize(order + entry) + inline
    tags: Tags = {}
    for number in range(count):
        at = offset + number * size
        tag, kind, many = reader.unpack(order + entry, at)
        if tag in _WANTED and kind in _TYPES:
            tags[tag] = _values(reader, (order, inline), (kind, many), at + size - inline)
    (following,) = reader.unpack(order + ("Q" if big else "I"), offset + count * size)
    return tags, following


def _values(reader: Reader, how: tuple[str, int], what: tuple[int, int], at: int) -> tuple[int, ...] | bytes | Numbers:
    (order, inline), (kind, many) = how, what
    letter = _TYPES[kind]
    length = struct.calcsize("<" + letter) * many
    if many > _BLOCKS:
        raise UnreadableImage("broken TIFF: more tiles than any picture has")
    if length > inline:
        (at,) = reader.unpack(order + ("Q" if inline == 8 else "I"), at)  # noqa: PLR2004  BigTIFF's
    if kind == 7:  # noqa: PLR2004  bytes
        return reader.at(at, length)
    if letter in "sfd":
        return ()
    if many > _FEW:
        return np.frombuffer(reader.at(at, length), order + letter).astype(np.int64)
    return reader.unpack(f"{order}{many}{letter}", at)


def _layout(reader: Reader, tags: Tags, order: str) -> Layout:
    def number(tag: int, default: int) -> int:
        value = tags.get(tag, ())
        return int(value[0]) if len(value) else default

    width, height, bands = number(_WIDTH, 0), number(_HEIGHT, 0), number(_SAMPLES, 1)
    if not 0 < width < 1 << 31 or not 0 < height < 1 << 31 or not 0 < bands < 1 << 16:
        raise UnreadableImage("broken TIFF: a side or a pixel of nothing")
    tiled = _TILES in tags
    planar = number(_PLANAR, 1) == 2 and bands > 1  # noqa: PLR2004  TIFF's number
    block = (number(_TILE_WIDTH, 0), number(_TILE_HEIGHT, 0)) if tiled else (width, min(number(_ROWS, height), height))
    if not 0 < block[0] < 1 << 24 or not 0 < block[1] < 1 << 31:
        raise UnreadableImage("broken TIFF: tiles of no size")
    layout = Layout(
        width=width,
        height=height,
        bands=bands,
        dtype=_dtype(tags),
        packed=number(_BITS, 1) < 8,  # noqa: PLR2004  bits
        order=order,
        block=block,
        tiled=tiled,
        planar=planar,
        compression=number(_COMPRESSION, 1),
        predictor=number(_PREDICTOR, 1),
        photometric=number(_PHOTOMETRIC, 1),
        offsets=_numbers(tags, _TILES if tiled else _STRIPS),
        counts=_numbers(tags, _TILE_BYTES if tiled else _STRIP_BYTES),
        tables=_bytes(tags.get(_JPEG_TABLES, b"")),
        reduced=bool(number(_SUBFILE, 0) & 1),
        orientation=number(_ORIENTATION, 1) if 1 <= number(_ORIENTATION, 1) <= 8 else 1,  # noqa: PLR2004  EXIF's
    )
    _check(reader, layout)
    return layout


def _numbers(tags: Tags, tag: int) -> Numbers:
    return np.asarray(tags.get(tag, ()), np.int64)


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""


def _dtype(tags: Tags) -> str:
    bits = tuple(int(value) for value in tags.get(_BITS, (1,))) or (1,)
    kind = tuple(int(value) for value in tags.get(_FORMAT, (1,))) or (1,)
    name = f"{_KINDS.get(kind[0], 'uint')}{bits[0]}"
    if bits[0] < 8 and kind[0] == 1:  # noqa: PLR2004  bits packed into bytes: Pillow's work
        return "uint8"
    if name not in _DTYPES or len(set(bits)) > 1:
        raise UnreadableImage(f"a TIFF of {name} samples, which no decoder here reads", "save it with 8 or 16 bits")
    return name


def _check(reader: Reader, layout: Layout) -> None:
    across, down = layout.grid
    blocks = across * down * (layout.bands if layout.planar else 1)
    if len(layout.offsets) < blocks or len(layout.counts) < blocks:
        raise UnreadableImage("broken TIFF: its list of tiles is too short")
    ends = layout.offsets[:blocks] + layout.counts[:blocks]
    if min(layout.offsets.min(), layout.counts.min(), ends.min()) < 0 or ends.max() > reader.size:
        raise UnreadableImage("truncated: the TIFF's tiles lie past the end of the file")
