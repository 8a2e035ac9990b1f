"""JPEG: frame, scans, restart interval, EXIF orientation, Adobe's colour transform."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ._header import Flag, Header, UnreadableImage
from ._reader import Reader

_SOI, _EOI, _SOS, _DRI, _APP1, _APP14 = 0xD8, 0xD9, 0xDA, 0xDD, 0xE1, 0xEE
_SOF = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
_UNREADABLE = {0xC3: "lossless", 0xC5: "hierarchical", 0xC6: "hierarchical", 0xC7: "hierarchical"}
_BARE = {0x01, *range(0xD0, 0xD8)}
_SEGMENTS = 4096  # no real file has as many before its first scan
_LOW, _TALLEST = 8, 65535
_ORIENTATION = 0x0112


@dataclass
class Scan:
    """Where the parts of a JPEG lie, up to its first scan.

    Attributes:
        marker: the frame's kind.
        precision: bits of a sample.
        width: columns.
        height: rows.
        factors: sampling factors (horizontal, vertical) of each component.
        restart: MCUs between restart markers.
        adobe: Adobe's colour transform; None without its marker.
        orientation: EXIF's number.
        scanned: components in the first scan.
        frame: where the frame segment starts.
        data: where entropy-coded data start.
    """

    marker: int = 0
    precision: int = 8
    width: int = 0
    height: int = 0
    factors: list[tuple[int, int]] = field(default_factory=list)
    restart: int = 0
    adobe: int | None = None
    orientation: int = 1
    scanned: int = 0
    frame: int = 0
    data: int = 0

    @property
    def mcu(self) -> tuple[int, int]:
        """Width and height of a minimum coded unit of an interleaved scan."""
        if len(self.factors) == 1:
            return 8, 8
        return 8 * max(h for h, _ in self.factors), 8 * max(v for _, v in self.factors)

    @property
    def sequential(self) -> bool:
        """Whether rows can be decoded without the coefficients of the whole image."""
        return self.marker not in _PROGRESSIVE and self.scanned == len(self.factors)

    @property
    def coefficients(self) -> int:
        """Bytes of the coefficients of the whole image, two a sample."""
        wide, tall = self.mcu
        mcus = -(-self.width // wide) * -(-self.height // tall)
        blocks = sum(h * v for h, v in self.factors) if len(self.factors) > 1 else 1
        return mcus * blocks * 64 * 2


def read_scan(reader: Reader) -> Scan:
    """Walk the segments up to the first scan."""
    scan, offset = Scan(), 2
    for _ in range(_SEGMENTS):
        marker, offset = _next_marker(reader, offset)
        if marker in _BARE:
            continue
        if marker == _EOI:
            raise UnreadableImage("broken JPEG: it ends before its picture begins")
        (length,) = reader.unpack(">H", offset)
        if length < 2:  # noqa: PLR2004  the length counts itself
            raise UnreadableImage("broken JPEG: a segment of no length")
        _take(scan, marker, offset, reader.at(offset, length)[2:])
        offset += length
        if marker == _SOS:
            scan.data = offset
            return scan
    raise UnreadableImage("broken JPEG: no picture among its first segments")


def _next_marker(reader: Reader, offset: int) -> tuple[int, int]:
    (first,) = reader.at(offset, 1)
    if first != 0xFF:  # noqa: PLR2004  every marker starts so
        raise UnreadableImage("broken JPEG: no marker where one must be")
    while (marker := reader.at(offset, 1)[0]) == 0xFF:  # noqa: PLR2004  any number of fill bytes
        offset += 1
    return marker, offset + 1


def _take(scan: Scan, marker: int, offset: int, body: bytes) -> None:
    if marker in _SOF:
        _take_frame(scan, marker, offset - 2, body)
    elif marker == _DRI and len(body) >= 2:  # noqa: PLR2004  one short number
        (scan.restart,) = struct.unpack_from(">H", body)
    elif marker == _APP1 and body.startswith(b"Exif\0\0"):
        scan.orientation = orientation(body[6:])
    elif marker == _APP14 and body.startswith(b"Adobe") and len(body) >= 12:  # noqa: PLR2004  its whole length
        scan.adobe = body[11]
    elif marker == _SOS and body:
        scan.scanned = body[0]
        if not scan.marker:
            raise UnreadableImage("broken JPEG: a scan before its frame")


def _take_frame(scan: Scan, marker: int, offset: int, body: bytes) -> None:
    if scan.marker:
        raise UnreadableImage("broken JPEG: two frames")
    if len(body) < 6 or len(body) < 6 + 3 * body[5]:  # noqa: PLR2004  fixed part, then three bytes a component
        raise UnreadableImage("broken JPEG: its frame header is cut short")
    scan.marker, scan.frame, scan.precision = marker, offset, body[0]
    scan.height, scan.width = struct.unpack_from(">HH", body, 1)
    factors = [body[6 + 3 * i + 1] for i in range(body[5])]
    scan.factors = [(factor >> 4, factor & 15) for factor in factors]
    if not scan.width or not scan.height:
        raise UnreadableImage("broken JPEG: a side of zero pixels")
    if len(scan.factors) not in {1, 3, 4} or any(not 1 <= side <= 4 for pair in scan.factors for side in pair):  # noqa: PLR2004
        raise UnreadableImage("broken JPEG: components that no decoder knows")


def orientation(tiff: bytes) -> int:
    """EXIF's orientation out of its TIFF block; 1 when it says nothing sensible."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 14:  # noqa: PLR2004  header, count and one entry
        return 1
    (first,) = struct.unpack_from(order + "I", tiff, 4)
    if first + 2 > len(tiff):
        return 1
    (count,) = struct.unpack_from(order + "H", tiff, first)
    for entry in range(first + 2, min(first + 2 + 12 * count, len(tiff) - 11), 12):
        tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, entry)
        if tag == _ORIENTATION:
            return value if kind == 3 and 1 <= value <= 8 else 1  # noqa: PLR2004  a short, and EXIF's range
    return 1


def read_jpeg(reader: Reader) -> Header:
    """The header of a JPEG; the file must hold the end of its picture too."""
    scan = read_scan(reader)
    if scan.marker in _UNREADABLE:
        raise UnreadableImage(
            f"a {_UNREADABLE[scan.marker]} JPEG, which no decoder here reads", "save it as a baseline JPEG"
        )
    if scan.precision != _LOW:
        raise UnreadableImage(
            f"a JPEG of {scan.precision} bits a sample, which no decoder here reads", "save it with 8 bits"
        )
    if reader.at(reader.size - 2, 2) != b"\xff\xd9" and reader.find_last(b"\xff\xd9", scan.data) < 0:
        raise UnreadableImage("truncated: the JPEG has no end")
    wide, tall = scan.mcu
    flags = Flag(0) if scan.sequential else Flag.PROGRESSIVE
    if len(scan.factors) == 4:  # noqa: PLR2004  CMYK
        flags |= Flag.CMYK | (Flag.INVERTED if scan.adobe is not None else Flag(0))
    return Header(
        format="jpeg",
        width=scan.width,
        height=scan.height,
        bands=len(scan.factors),
        orientation=scan.orientation,
        flags=flags,
        coefficients=0 if scan.sequential else scan.coefficients,
        restart=scan.restart,
        block_width=wide,
        block_height=tall,
    )
