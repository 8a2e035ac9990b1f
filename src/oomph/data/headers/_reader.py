"""A file read at offsets, a block at a time, never beyond its end."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ._header import UnreadableImage

_BLOCK = 16 * 1024  # most headers end before it does
_LARGEST = 256 * 1024 * 1024  # nothing in a header is longer


class Reader:
    """An open file; every read that would pass its end says that the file is truncated."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size
        self._start = 0
        self._block = b""

    @classmethod
    @contextmanager
    def open(cls, path: str) -> Iterator[Reader]:
        """Open a file for the time of a `with` block."""
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            yield cls(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def at(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset` on.

        Raises:
            Broken: the file ends before.
        """
        if offset < 0 or count < 0 or offset + count > self.size or count > _LARGEST:
            raise UnreadableImage("truncated: its header points past the end of the file")
        begin = offset - self._start
        if begin < 0 or begin + count > len(self._block):
            self._start, begin = offset, 0
            self._block = _pread(self._descriptor, max(count, min(_BLOCK, self.size - offset)), offset)
        found = self._block[begin : begin + count]
        if len(found) < count:
            raise UnreadableImage("truncated: the file became shorter while it was read")
        return found

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        """Numbers in `struct`'s notation at an offset."""
        return struct.unpack(layout, self.at(offset, struct.calcsize(layout)))

    def find_last(self, wanted: bytes, begin: int) -> int:
        """Where `wanted` stands last at or after `begin`, searched backwards by blocks; -1 when nowhere."""
        end, step = self.size, 1024 * 1024
        while end > begin:
            start = max(begin, end - step)
            found = _pread(self._descriptor, end - start, start).rfind(wanted)
            if found >= 0:
                return start + found
            if start == begin:
                break
            end = start + len(wanted) - 1
        return -1


def _pread(descriptor: int, count: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)  # Windows: a reader belongs to one thread
    return os.read(descriptor, count)


def suffix_of(path: str) -> str:
    """The suffix in small letters, with its dot."""
    return Path(path).suffix.lower()
