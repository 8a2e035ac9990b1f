"""Memory that worker processes share with the loader.

A file in `/dev/shm`, or in the folder for temporary files where that is too small, whose space is claimed before it is
mapped: a full `/dev/shm` is an answer here, and a bus error otherwise.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections import deque
from pathlib import Path

import numpy as np

from ...errors import CannotFit
from ...units import format_size
from ._ring import BatchAllocator, Bytes, copied

_SHM = "/dev/shm"  # noqa: S108  the name is the system's


class Slab:
    """Slots of the same size in one shared file."""

    def __init__(self, count: int, size: int) -> None:
        self._size = size
        self.path = _claim(count * size)
        self.bytes = mapped(self.path)
        self._start = _address(self.bytes)
        self._count = count
        self._free: deque[int] = deque(range(count))
        self._close = weakref.finalize(self, _remove, self.path, os.getpid())

    def lend(self, shape: tuple[int, ...]) -> Bytes:
        """A slot in a shape; `hand_out` brings it back. There are more slots than batches in work."""
        start = self._free.popleft() * self._size
        return self.bytes[start : start + int(np.prod(shape))].reshape(shape)

    def hand_out(self, canvas: Bytes, room: BatchAllocator | None = None) -> Bytes:
        """A copy; the slot is free again."""
        copy = copied(canvas, room or _plain)
        self._free.append(self.offset(canvas) // self._size)
        return copy

    def renew(self) -> None:
        """Take back what a pass that was broken off had in work."""
        self._free = deque(range(self._count))

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._count * self._size

    def offset(self, canvas: Bytes) -> int:
        """Where a part of a slot lies in the file."""
        return _address(canvas) - self._start

    def close(self) -> None:
        """Remove the file; what is mapped stays until it is dropped."""
        self._close()


def _plain(shape: tuple[int, ...]) -> Bytes:
    return np.empty(shape, np.uint8)


def mapped(path: str) -> Bytes:
    """The bytes of a shared file."""
    with Path(path).open("r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)


def _address(array: Bytes) -> int:
    return int(array.__array_interface__["data"][0])


def _claim(size: int) -> str:
    for folder in (_SHM, tempfile.gettempdir()):
        if not os.access(folder, os.W_OK):
            continue
        try:
            handle, name = tempfile.mkstemp(prefix="oomph-", dir=folder)
        except OSError:
            continue
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, size)
            else:
                os.ftruncate(handle, size)
        except OSError:
            Path(name).unlink(missing_ok=True)
        else:
            return name
        finally:
            os.close(handle)
    raise CannotFit(
        f"worker processes need {format_size(size)} of shared memory, and neither /dev/shm nor the disk has it",
        "use threads, a smaller batch or less prefetch, or make room",
    )


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked worker's copy removes nothing
        Path(path).unlink(missing_ok=True)
