"""JPEG headers: frame, first scan, restart interval, EXIF orientation, Adobe color transform."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ._file_reader import FileReader
from ._header import Header, ImageFlag, UnreadableImage

_EOI, _SOS, _DRI, _APP1, _APP14 = 0xD9, 0xDA, 0xDD, 0xE1, 0xEE
_SOF = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
_PROGRESSIVE_FRAMES = {0xC2, 0xC6, 0xCA, 0xCE}
_UNSUPPORTED_FRAMES = {0xC3: "lossless", 0xC5: "hierarchical", 0xC6: "hierarchical", 0xC7: "hierarchical"}
_MARKERS_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}
_MAX_SEGMENTS = 4096  # before the first scan
_SUPPORTED_PRECISION = 8
_ORIENTATION_TAG = 0x0112


@dataclass
class JpegStructure:
    """The parts of a JPEG file up to its first scan.

    Attributes:
        frame_marker: marker of the frame, which is its kind.
        precision: bits per sample.
        width: columns.
        height: rows.
        sampling: sampling factors (horizontal, vertical) of each component.
        restart_interval: MCUs between restart markers.
        adobe_transform: Adobe color transform; None without the Adobe marker.
        orientation: EXIF orientation.
        scan_components: components in the first scan.
        frame_offset: offset of the frame segment.
        data_offset: offset of the entropy-coded data.
    """

    frame_marker: int = 0
    precision: int = 8
    width: int = 0
    height: int = 0
    sampling: list[tuple[int, int]] = field(default_factory=list)
    restart_interval: int = 0
    adobe_transform: int | None = None
    orientation: int = 1
    scan_components: int = 0
    frame_offset: int = 0
    data_offset: int = 0

    @property
    def mcu_size(self) -> tuple[int, int]:
        """Width and height of a minimum coded unit (MCU) of an interleaved scan."""
        if len(self.sampling) == 1:
            return 8, 8
        return 8 * max(h for h, _ in self.sampling), 8 * max(v for _, v in self.sampling)

    @property
    def is_sequential(self) -> bool:
        """True if rows can be decoded without the coefficients of the whole image."""
        return self.frame_marker not in _PROGRESSIVE_FRAMES and self.scan_components == len(self.sampling)

    @property
    def coefficient_bytes(self) -> int:
        """Bytes of the coefficients of the whole image, two per sample."""
        width, height = self.mcu_size
        mcus = -(-self.width // width) * -(-self.height // height)
        blocks = sum(h * v for h, v in self.sampling) if len(self.sampling) > 1 else 1
        return mcus * blocks * 64 * 2


def read_jpeg_structure(reader: FileReader) -> JpegStructure:
    """Parse the segments up to the first scan."""
    structure, offset = JpegStructure(), 2
    for _ in range(_MAX_SEGMENTS):
        marker, offset = _next_marker(reader, offset)
        if marker in _MARKERS_WITHOUT_LENGTH:
            continue
        if marker == _EOI:
            raise UnreadableImage("damaged JPEG: it ends before the image data")
        (length,) = reader.unpack(">H", offset)
        if length < 2:  # noqa: PLR2004  the length includes its own two bytes
            raise UnreadableImage("damaged JPEG: a segment without length")
        _parse_segment(structure, marker, offset, reader.read(offset, length)[2:])
        offset += length
        if marker == _SOS:
            structure.data_offset = offset
            return structure
    raise UnreadableImage(f"damaged JPEG: no image data in the first {_MAX_SEGMENTS} segments")


def _next_marker(reader: FileReader, offset: int) -> tuple[int, int]:
    (first,) = reader.read(offset, 1)
    if first != 0xFF:  # noqa: PLR2004  the first byte of every marker
        raise UnreadableImage("damaged JPEG: a marker is missing")
    while (marker := reader.read(offset, 1)[0]) == 0xFF:  # noqa: PLR2004  any number of fill bytes
        offset += 1
    return marker, offset + 1


def _parse_segment(structure: JpegStructure, marker: int, offset: int, body: bytes) -> None:
    if marker in _SOF:
        _parse_frame(structure, marker, offset - 2, body)
    elif marker == _DRI and len(body) >= 2:  # noqa: PLR2004  one 16-bit number
        (structure.restart_interval,) = struct.unpack_from(">H", body)
    elif marker == _APP1 and body.startswith(b"Exif\0\0"):
        structure.orientation = exif_orientation(body[6:])
    elif marker == _APP14 and body.startswith(b"Adobe") and len(body) >= 12:  # noqa: PLR2004  the full length
        structure.adobe_transform = body[11]
    elif marker == _SOS and body:
        structure.scan_components = body[0]
        if not structure.frame_marker:
            raise UnreadableImage("damaged JPEG: a scan before the frame")


def _parse_frame(structure: JpegStructure, marker: int, offset: int, body: bytes) -> None:
    if structure.frame_marker:
        raise UnreadableImage("damaged JPEG: two frames")
    if len(body) < 6 or len(body) < 6 + 3 * body[5]:  # noqa: PLR2004  a fixed part, then 3 bytes per component
        raise UnreadableImage("damaged JPEG: the frame header is cut short")
    structure.frame_marker, structure.frame_offset, structure.precision = marker, offset, body[0]
    structure.height, structure.width = struct.unpack_from(">HH", body, 1)
    factors = [body[6 + 3 * i + 1] for i in range(body[5])]
    structure.sampling = [(factor >> 4, factor & 15) for factor in factors]
    if not structure.width or not structure.height:
        raise UnreadableImage("damaged JPEG: zero width or height")
    valid = all(1 <= side <= 4 for pair in structure.sampling for side in pair)  # noqa: PLR2004  the standard's range
    if len(structure.sampling) not in {1, 3, 4} or not valid:
        raise UnreadableImage("damaged JPEG: unknown components")


def exif_orientation(tiff: bytes) -> int:
    """Return the orientation from the TIFF block of EXIF data; 1 if it is missing or invalid."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 14:  # noqa: PLR2004  header, count and one entry
        return 1
    (first,) = struct.unpack_from(order + "I", tiff, 4)
    if first + 2 > len(tiff):
        return 1
    (count,) = struct.unpack_from(order + "H", tiff, first)
    for entry in range(first + 2, min(first + 2 + 12 * count, len(tiff) - 11), 12):
        tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, entry)
        if tag == _ORIENTATION_TAG:
            return value if kind == 3 and 1 <= value <= 8 else 1  # noqa: PLR2004  a 16-bit number in EXIF's range
    return 1


def read_jpeg(reader: FileReader) -> Header:
    """Read the header of a JPEG and check that the file has an end-of-image marker."""
    structure = read_jpeg_structure(reader)
    if structure.frame_marker in _UNSUPPORTED_FRAMES:
        raise UnreadableImage(
            f"unsupported format: {_UNSUPPORTED_FRAMES[structure.frame_marker]} JPEG", "save it as a baseline JPEG"
        )
    if structure.precision != _SUPPORTED_PRECISION:
        raise UnreadableImage(
            f"unsupported format: JPEG with {structure.precision} bits per sample", "save it with 8 bits per sample"
        )
    if reader.read(reader.size - 2, 2) != b"\xff\xd9" and reader.find_last(b"\xff\xd9", structure.data_offset) < 0:
        raise UnreadableImage("truncated: the JPEG has no end-of-image marker")
    mcu_width, mcu_height = structure.mcu_size
    flags = ImageFlag(0) if structure.is_sequential else ImageFlag.PROGRESSIVE
    if len(structure.sampling) == 4:  # noqa: PLR2004  CMYK
        flags |= ImageFlag.CMYK | (ImageFlag.INVERTED if structure.adobe_transform is not None else ImageFlag(0))
    return Header(
        format="jpeg",
        width=structure.width,
        height=structure.height,
        bands=len(structure.sampling),
        orientation=structure.orientation,
        flags=flags,
        coefficient_bytes=0 if structure.is_sequential else structure.coefficient_bytes,
        restart_interval=structure.restart_interval,
        block_width=mcu_width,
        block_height=mcu_height,
    )
