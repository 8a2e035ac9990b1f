"""Reads at offsets in a file, a block at a time, never past its end."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from ._header import UnreadableImage

_BLOCK_BYTES = 16 * 1024  # most headers are shorter
_MAX_READ_BYTES = 256 * 1024 * 1024  # no part of a header is longer
_SEARCH_BYTES = 1024 * 1024


class FileReader:
    """An open file. A read past its end raises UnreadableImage, because the file is truncated."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size
        self._block_start = 0
        self._block = b""

    @classmethod
    @contextmanager
    def open(cls, path: str) -> Iterator[FileReader]:
        """Open a file for the duration of a `with` block."""
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            yield cls(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def read(self, offset: int, count: int) -> bytes:
        """Return exactly `count` bytes at `offset`.

        Raises:
            UnreadableImage: the file ends before that.
        """
        if offset < 0 or count < 0 or offset + count > self.size or count > _MAX_READ_BYTES:
            raise UnreadableImage("truncated: the header points past the end of the file")
        start = offset - self._block_start
        if start < 0 or start + count > len(self._block):
            self._block_start, start = offset, 0
            self._block = _pread(self._descriptor, max(count, min(_BLOCK_BYTES, self.size - offset)), offset)
        data = self._block[start : start + count]
        if len(data) < count:
            raise UnreadableImage("truncated: the file became shorter while it was read")
        return data

    def unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        """Unpack numbers at an offset, in the notation of `struct`."""
        return struct.unpack(layout, self.read(offset, struct.calcsize(layout)))

    def find_last(self, pattern: bytes, begin: int) -> int:
        """Return the last position of `pattern` at or after `begin`, searching backwards; -1 if there is none."""
        end = self.size
        while end > begin:
            start = max(begin, end - _SEARCH_BYTES)
            position = _pread(self._descriptor, end - start, start).rfind(pattern)
            if position >= 0:
                return start + position
            if start == begin:
                break
            end = start + len(pattern) - 1
        return -1


def _pread(descriptor: int, count: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)  # Windows: safe because a reader belongs to one thread
    return os.read(descriptor, count)
