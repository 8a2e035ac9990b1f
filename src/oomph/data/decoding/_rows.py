"""Rows of a JPEG without the rest of it: where restart markers stand, the picture can be entered there.

A JPEG is cut open at the markers around the wanted rows and closed again with a lower height: a small, valid JPEG.
"""

from __future__ import annotations

import io
import mmap
import struct
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..headers import Flag, Header, Reader, UnreadableImage, read_scan

_MARK, _END, _FIRST, _LAST = 0xFF, 0xD9, 0xD0, 0xD7
_HEIGHT_AT = 5  # into a frame: marker, length, precision, then the height
_MARGIN = 1  # rows of MCUs more on each side: colours are interpolated across them
_FILES = 16  # whose markers are remembered


class Cut(NamedTuple):
    """A JPEG of some rows of another, and which rows those are."""

    data: bytes
    top: int
    rows: int


def can_cut(header: Header) -> bool:
    """Whether restart markers stand at the starts of MCU rows often enough."""
    if header.format != "jpeg" or not header.restart or header.flags & Flag.PROGRESSIVE:
        return False
    return group_of(header) < -(-header.height // header.block_height)


def group_of(header: Header) -> int:
    """MCU rows from one that starts with a restart marker to the next such."""
    across = -(-header.width // header.block_width)
    return int(np.lcm(across, header.restart)) // across


def cut_rows(path: str, header: Header, top: int, bottom: int) -> Cut:
    """A JPEG that holds the rows from top to bottom, and a few more."""
    group, tall = group_of(header), header.block_height
    mcu_rows = -(-header.height // tall)
    first = max(top // tall - _MARGIN, 0) // group * group
    last = min(-(-(min(-(-bottom // tall) + _MARGIN, mcu_rows)) // group) * group, mcu_rows)
    across = -(-header.width // header.block_width)
    per_row = across / header.restart
    begin, end = round(first * per_row), -(-last * across // header.restart)
    starts = _segments(path, header.size, header.mtime_ns)
    with Reader.open(path) as reader:
        scan = read_scan(reader)
        segments = -(-(mcu_rows * across) // header.restart)
        if len(starts) != segments + 1:
            raise UnreadableImage("broken JPEG: restart markers are missing")
        head = bytearray(reader.at(0, scan.data))
        data = bytearray(reader.at(int(starts[begin]), int(starts[end] - starts[begin])))
    rows = min(last * tall, header.height) - first * tall
    struct.pack_into(">H", head, scan.frame + _HEIGHT_AT, rows)
    # Markers count from 0 to 7 round and round; the new picture's count starts anew, the last is replaced by the end.
    for number, start in enumerate(starts[begin + 1 : end + 1] - starts[begin]):
        data[int(start) - 1] = _FIRST + number % 8
    data[-2:] = b"\xff\xd9"
    return Cut(bytes(head + data), first * tall, rows)


@lru_cache(_FILES)
def _segments(path: str, size: int, mtime_ns: int) -> NDArray[np.int64]:
    """Where the data between restart markers start; the last one is behind the end marker."""
    del size, mtime_ns  # part of the key: a changed file is looked at again
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with Reader.open(path) as reader:
            begin = read_scan(reader).data
        found = [begin]
        step = 4 * 1024 * 1024
        for start in range(begin, len(mapped), step):
            part = np.frombuffer(mapped[start : start + step + 1], np.uint8)
            marks = np.flatnonzero(part[:-1] == _MARK)
            kinds = part[marks + 1]
            ends = marks[kinds == _END]
            stop = int(ends[0]) if len(ends) else len(part)
            wanted = marks[(kinds >= _FIRST) & (kinds <= _LAST) & (marks < stop)]
            found += (wanted + start + 2).tolist()
            if len(ends):
                found.append(start + stop + 2)
                break
    return np.array(found, np.int64)


def as_file(cut: Cut) -> io.BytesIO:
    """The small JPEG as an open file."""
    return io.BytesIO(cut.data)
