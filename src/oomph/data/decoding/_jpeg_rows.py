"""Decoding of some rows of a JPEG that has restart markers.

The entropy-coded data is cut at the restart markers around the rows. With a header of lower height in front, the part
is a small, valid JPEG.
"""

from __future__ import annotations

import mmap
import struct
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..headers import FileReader, Header, ImageFlag, UnreadableImage, read_jpeg_structure

_MARKER, _END, _FIRST_RESTART, _LAST_RESTART = 0xFF, 0xD9, 0xD0, 0xD7
_HEIGHT_OFFSET = 5  # in a frame segment: marker, length, precision, height
_MARGIN_ROWS = 1  # extra MCU rows on each side, because chroma is interpolated across them
_CACHED_FILES = 16
_SCAN_BYTES = 4 * 1024 * 1024


class JpegStrip(NamedTuple):
    """A JPEG made of some rows of another one: its bytes, the first row, and the number of rows."""

    data: bytes
    top: int
    rows: int


def can_cut_rows(header: Header) -> bool:
    """Return True if restart markers start MCU rows often enough to decode a part of the rows."""
    if header.format != "jpeg" or not header.restart_interval or header.flags & ImageFlag.PROGRESSIVE:
        return False
    return restart_row_period(header) < -(-header.height // header.block_height)


def restart_row_period(header: Header) -> int:
    """Return the number of MCU rows between two rows that start at a restart marker."""
    mcus_across = -(-header.width // header.block_width)
    return int(np.lcm(mcus_across, header.restart_interval)) // mcus_across


def cut_rows(path: str, header: Header, top: int, bottom: int) -> JpegStrip:
    """Cut a JPEG that contains the rows from `top` to `bottom` and a few more."""
    period, mcu_height, interval = restart_row_period(header), header.block_height, header.restart_interval
    mcu_rows = -(-header.height // mcu_height)
    mcus_across = -(-header.width // header.block_width)
    first = max(top // mcu_height - _MARGIN_ROWS, 0) // period * period
    last = min(-(-(min(-(-bottom // mcu_height) + _MARGIN_ROWS, mcu_rows)) // period) * period, mcu_rows)
    begin, end = round(first * mcus_across / interval), -(-last * mcus_across // interval)
    starts = _restart_segments(path, header.file_size, header.mtime_ns)
    with FileReader.open(path) as reader:
        structure = read_jpeg_structure(reader)
        segments = -(-(mcu_rows * mcus_across) // interval)
        if len(starts) != segments + 1:
            raise UnreadableImage("damaged JPEG: restart markers are missing")
        head = bytearray(reader.read(0, structure.data_offset))
        data = bytearray(reader.read(int(starts[begin]), int(starts[end] - starts[begin])))
    rows = min(last * mcu_height, header.height) - first * mcu_height
    struct.pack_into(">H", head, structure.frame_offset + _HEIGHT_OFFSET, rows)
    # Restart markers count from 0 to 7 cyclically. The strip counts from 0 again, and its last marker becomes the end.
    for number, start in enumerate(starts[begin + 1 : end + 1] - starts[begin]):
        data[int(start) - 1] = _FIRST_RESTART + number % 8
    data[-2:] = b"\xff\xd9"
    return JpegStrip(bytes(head + data), first * mcu_height, rows)


@lru_cache(_CACHED_FILES)
def _restart_segments(path: str, size: int, mtime_ns: int) -> NDArray[np.int64]:
    """Return the offsets of the data between restart markers, and the offset after the end marker."""
    del size, mtime_ns  # part of the cache key, so that a changed file is read again
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with FileReader.open(path) as reader:
            begin = read_jpeg_structure(reader).data_offset
        offsets = [begin]
        for start in range(begin, len(mapped), _SCAN_BYTES):
            part = np.frombuffer(mapped[start : start + _SCAN_BYTES + 1], np.uint8)
            markers = np.flatnonzero(part[:-1] == _MARKER)
            kinds = part[markers + 1]
            ends = markers[kinds == _END]
            stop = int(ends[0]) if len(ends) else len(part)
            restarts = markers[(kinds >= _FIRST_RESTART) & (kinds <= _LAST_RESTART) & (markers < stop)]
            offsets += (restarts + start + 2).tolist()
            if len(ends):
                offsets.append(start + stop + 2)
                break
    return np.array(offsets, np.int64)
