"""TIFF and BigTIFF headers: the position and encoding of every tile or strip."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._file_reader import FileReader
from ._header import Header, ImageFlag, UnreadableImage

_TYPES = {1: "B", 2: "s", 3: "H", 4: "I", 6: "b", 7: "B", 8: "h", 9: "i", 11: "f", 12: "d", 16: "Q", 17: "q", 18: "Q"}
_UNDEFINED_TYPE = 7
_SAMPLE_KINDS = {1: "uint", 2: "int", 3: "float"}
_DTYPES = {"uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32", "float64"}
# Tag numbers
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIP_OFFSETS, _ORIENTATION, _SAMPLES, _ROWS_PER_STRIP, _STRIP_BYTES, _PLANAR = 273, 274, 277, 278, 279, 284
_PREDICTOR, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_BYTES = 317, 322, 323, 324, 325
_EXTRA_SAMPLES, _SAMPLE_FORMAT, _JPEG_TABLES, _SUBFILE_TYPE = 338, 339, 347, 254
_READ_TAGS = {
    _STRIP_OFFSETS, _STRIP_BYTES, _TILE_OFFSETS, _TILE_BYTES, _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC,
    _ORIENTATION, _SAMPLES, _ROWS_PER_STRIP, _PLANAR, _PREDICTOR, _TILE_WIDTH, _TILE_HEIGHT, _EXTRA_SAMPLES,
    _SAMPLE_FORMAT, _JPEG_TABLES, _SUBFILE_TYPE,
}  # fmt: skip
_MAX_TUPLE_LENGTH = 64  # longer lists of numbers become NumPy arrays
_MAX_ENTRIES, _MAX_PAGES, _MAX_BLOCKS = 4096, 64, 16 * 1024 * 1024
_BIGTIFF_VERSION = 43
_PALETTE, _CMYK, _WHITE_IS_ZERO, _YCBCR, _JPEG = 3, 5, 0, 6, 7

IntArray = NDArray[np.int64]
Tags = dict[int, tuple[int, ...] | bytes | IntArray]


@dataclass(frozen=True, eq=False)
class TiffPage:
    """One image of a TIFF file.

    Attributes:
        width: columns.
        height: rows.
        bands: samples per pixel.
        dtype: NumPy name of the sample type.
        packed: several samples share a byte.
        byte_order: "<" or ">", as in `struct`.
        block_size: width and height of a tile or strip.
        tiled: the blocks are tiles, not strips.
        planar: every band has its own blocks, one band after another.
        compression: TIFF compression number.
        predictor: TIFF predictor number; 1 is no predictor.
        photometric: TIFF photometric interpretation.
        offsets: offsets of the blocks, row by row.
        byte_counts: stored bytes of the blocks.
        jpeg_tables: JPEG tables shared by all blocks.
        is_overview: the page is a smaller copy of another one.
        orientation: EXIF orientation.
    """

    width: int
    height: int
    bands: int
    dtype: str
    packed: bool
    byte_order: str
    block_size: tuple[int, int]
    tiled: bool
    planar: bool
    compression: int
    predictor: int
    photometric: int
    offsets: IntArray
    byte_counts: IntArray
    jpeg_tables: bytes
    is_overview: bool
    orientation: int

    @property
    def grid(self) -> tuple[int, int]:
        """Number of blocks across and down."""
        return -(-self.width // self.block_size[0]), -(-self.height // self.block_size[1])


def read_tiff(reader: FileReader) -> Header:
    """Read the header of the first page of a TIFF."""
    page = read_pages(reader, 1)[0]
    subsampled = page.photometric == _YCBCR and page.compression != _JPEG
    conditions = {
        ImageFlag.PLANAR: page.planar,
        ImageFlag.PALETTE: page.photometric == _PALETTE,
        ImageFlag.CMYK: page.photometric == _CMYK,
        ImageFlag.INVERTED: page.photometric == _WHITE_IS_ZERO,
        ImageFlag.PACKED: page.packed or subsampled,
        ImageFlag.BIGENDIAN: page.byte_order == ">",
    }
    flags = ImageFlag.TILED
    for flag, is_set in conditions.items():
        flags |= flag if is_set else ImageFlag(0)
    return Header(
        format="tiff",
        width=page.width,
        height=page.height,
        bands=page.bands,
        dtype=page.dtype,
        orientation=page.orientation,
        flags=flags,
        block_width=page.block_size[0],
        block_height=page.block_size[1],
        compression=page.compression,
    )


def read_pages(reader: FileReader, max_pages: int = _MAX_PAGES) -> list[TiffPage]:
    """Read the pages of a TIFF in file order; pages after the first are left out if they can't be read."""
    order = {b"II": "<", b"MM": ">"}[reader.read(0, 2)]
    (version,) = reader.unpack(order + "H", 2)
    big = version == _BIGTIFF_VERSION
    (offset,) = reader.unpack(order + ("Q" if big else "I"), 8 if big else 4)
    pages: list[TiffPage] = []
    seen: set[int] = set()
    while offset and offset not in seen and len(pages) < max_pages:
        seen.add(offset)
        tags, offset = _read_directory(reader, offset, order, big=big)
        try:
            pages.append(_read_page(reader, tags, order))
        except UnreadableImage:
            if not pages:  # later pages may be masks or metadata
                raise
    if not pages:
        raise UnreadableImage("damaged TIFF: no image data")
    return pages


def _read_directory(reader: FileReader, offset: int, order: str, *, big: bool) -> tuple[Tags, int]:
    head, entry, inline_bytes = ("Q", "HHQ", 8) if big else ("H", "HHI", 4)
    (count,) = reader.unpack(order + head, offset)
    if count > _MAX_ENTRIES:
        raise UnreadableImage("damaged TIFF: the directory is too long")
    offset += struct.calcsize(order + head)
    entry_bytes = struct.calcsize(order + entry) + inline_bytes
    tags: Tags = {}
    for number in range(count):
        position = offset + number * entry_bytes
        tag, kind, length = reader.unpack(order + entry, position)
        if tag in _READ_TAGS and kind in _TYPES:
            value_at = position + entry_bytes - inline_bytes
            tags[tag] = _read_values(reader, (order, inline_bytes), (kind, length), value_at)
    (next_offset,) = reader.unpack(order + ("Q" if big else "I"), offset + count * entry_bytes)
    return tags, next_offset


def _read_values(
    reader: FileReader, encoding: tuple[str, int], content: tuple[int, int], offset: int
) -> tuple[int, ...] | bytes | IntArray:
    (order, inline_bytes), (kind, length) = encoding, content
    letter = _TYPES[kind]
    size = struct.calcsize("<" + letter) * length
    if length > _MAX_BLOCKS:
        raise UnreadableImage("damaged TIFF: too many tiles")
    if size > inline_bytes:
        (offset,) = reader.unpack(order + ("Q" if inline_bytes == 8 else "I"), offset)  # noqa: PLR2004  BigTIFF
    if kind == _UNDEFINED_TYPE:
        return reader.read(offset, size)
    if letter in "sfd":
        return ()
    if length > _MAX_TUPLE_LENGTH:
        return np.frombuffer(reader.read(offset, size), order + letter).astype(np.int64)
    return reader.unpack(f"{order}{length}{letter}", offset)


def _read_page(reader: FileReader, tags: Tags, order: str) -> TiffPage:
    def number(tag: int, default: int) -> int:
        value = tags.get(tag, ())
        return int(value[0]) if len(value) else default

    width, height, bands = number(_WIDTH, 0), number(_HEIGHT, 0), number(_SAMPLES, 1)
    if not 0 < width < 1 << 31 or not 0 < height < 1 << 31 or not 0 < bands < 1 << 16:
        raise UnreadableImage("damaged TIFF: invalid width, height or number of bands")
    tiled = _TILE_OFFSETS in tags
    rows_per_strip = min(number(_ROWS_PER_STRIP, height), height)
    block_size = (number(_TILE_WIDTH, 0), number(_TILE_HEIGHT, 0)) if tiled else (width, rows_per_strip)
    if not 0 < block_size[0] < 1 << 24 or not 0 < block_size[1] < 1 << 31:
        raise UnreadableImage("damaged TIFF: invalid tile size")
    jpeg_tables = tags.get(_JPEG_TABLES, b"")
    page = TiffPage(
        width=width,
        height=height,
        bands=bands,
        dtype=_dtype(tags),
        packed=number(_BITS, 1) < 8,  # noqa: PLR2004  bits
        byte_order=order,
        block_size=block_size,
        tiled=tiled,
        planar=number(_PLANAR, 1) == 2 and bands > 1,  # noqa: PLR2004  TIFF's number for separate planes
        compression=number(_COMPRESSION, 1),
        predictor=number(_PREDICTOR, 1),
        photometric=number(_PHOTOMETRIC, 1),
        offsets=np.asarray(tags.get(_TILE_OFFSETS if tiled else _STRIP_OFFSETS, ()), np.int64),
        byte_counts=np.asarray(tags.get(_TILE_BYTES if tiled else _STRIP_BYTES, ()), np.int64),
        jpeg_tables=jpeg_tables if isinstance(jpeg_tables, bytes) else b"",
        is_overview=bool(number(_SUBFILE_TYPE, 0) & 1),
        orientation=number(_ORIENTATION, 1) if 1 <= number(_ORIENTATION, 1) <= 8 else 1,  # noqa: PLR2004  EXIF's range
    )
    _check_blocks(reader, page)
    return page


def _dtype(tags: Tags) -> str:
    bits = tuple(int(value) for value in tags.get(_BITS, (1,))) or (1,)
    kind = tuple(int(value) for value in tags.get(_SAMPLE_FORMAT, (1,))) or (1,)
    name = f"{_SAMPLE_KINDS.get(kind[0], 'uint')}{bits[0]}"
    if bits[0] < 8 and kind[0] == 1:  # noqa: PLR2004  bits packed into bytes, which Pillow unpacks
        return "uint8"
    if name not in _DTYPES or len(set(bits)) > 1:
        raise UnreadableImage(f"unsupported format: TIFF with {name} samples", "save it with 8 or 16 bits per sample")
    return name


def _check_blocks(reader: FileReader, page: TiffPage) -> None:
    across, down = page.grid
    blocks = across * down * (page.bands if page.planar else 1)
    if len(page.offsets) < blocks or len(page.byte_counts) < blocks:
        raise UnreadableImage("damaged TIFF: the list of tiles is too short")
    ends = page.offsets[:blocks] + page.byte_counts[:blocks]
    if min(page.offsets.min(), page.byte_counts.min(), ends.min()) < 0 or ends.max() > reader.size:
        raise UnreadableImage("truncated: tiles of the TIFF lie past the end of the file")
