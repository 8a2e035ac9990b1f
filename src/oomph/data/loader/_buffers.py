"""Buffers that batches are written into: in this process, or shared with worker processes."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import CannotFit
from ...units import format_size

if TYPE_CHECKING:
    from torch import Tensor

Bytes = NDArray[np.uint8]
Allocate = Callable[[tuple[int, ...]], Bytes]  # returns an array of a shape, such as one in pinned memory
_SHM = "/dev/shm"  # noqa: S108  the system's shared memory


class Batch(NamedTuple):
    """A batch: a tuple of three, as from a DataLoader.

    Attributes:
        images: uint8 tensor (samples, 3, height, width) in channels-last memory.
        indices: numbers of the samples.
        targets: targets of the samples, combined by `collate`. Without a builder, a tuple of Letterbox values with the
            placement of each image on its canvas.
    """

    images: Tensor
    indices: Tensor
    targets: Any


class BufferPool:
    """Reusable buffers of equal size in this process.

    A buffer returns to the pool when the last array or tensor that refers to it is gone. If the consumer keeps
    batches, more buffers are allocated: the loader never waits for memory that the consumer holds, and never
    overwrites it.
    """

    def __init__(self, count: int, size: int) -> None:
        self._size = size
        self._allocated = 0
        self._free: deque[Bytes] = deque(self._allocate() for _ in range(count))

    def _allocate(self) -> Bytes:
        self._allocated += 1
        return np.full(self._size, 0, np.uint8)  # touches the pages: the memory of a new loader is visible at once

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return self._allocated * self._size

    def acquire(self, shape: tuple[int, ...]) -> Bytes:
        """Return a buffer in a shape; it is free again when the array and all views of it are gone.

        Only one thread at a time may call it, but buffers are freed by any thread.
        """
        buffer = self._free.popleft() if self._free else self._allocate()
        # Views of an array refer to its base, and an array from a memoryview is its own base.
        base = np.frombuffer(buffer.data[: int(np.prod(shape))], np.uint8)
        weakref.finalize(base, self._free.append, buffer).atexit = False
        return base.reshape(shape)

    def hand_over(self, canvas: Bytes, allocate: Allocate | None = None) -> Bytes:
        """Return a finished batch for the consumer: the buffer itself, or a copy in memory from `allocate`."""
        return canvas if allocate is None else _copy(canvas, allocate)

    def reset(self) -> None:
        """Do nothing: buffers return by themselves."""

    def close(self) -> None:
        """Do nothing: there is no shared memory."""


class SharedBuffers:
    """Buffers of equal size in a file that worker processes map.

    The file is in `/dev/shm`, or in the temporary folder if that is too small. Its space is allocated before it is
    mapped: a full `/dev/shm` raises CannotFit here, and would be a bus error later.
    """

    def __init__(self, count: int, size: int) -> None:
        self._count, self._size = count, size
        self._free: deque[int] = deque(range(count))
        self._allocate()

    def _allocate(self) -> None:
        self.path = _allocate_file(self.nbytes)
        self._memory = map_shared(self.path)
        self._remove = weakref.finalize(self, _remove_file, self.path, os.getpid())

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return self._count * self._size

    def acquire(self, shape: tuple[int, ...]) -> Bytes:
        """Return a buffer in a shape; `hand_over` frees it. There are more buffers than batches in progress."""
        start = self._free.popleft() * self._size
        return self._memory[start : start + int(np.prod(shape))].reshape(shape)

    def hand_over(self, canvas: Bytes, allocate: Allocate | None = None) -> Bytes:
        """Return a copy of a finished batch for the consumer, and free its buffer."""
        copy = _copy(canvas, allocate or _allocate_array)
        self._free.append(self.offset(canvas) // self._size)
        return copy

    def reset(self) -> None:
        """Take back the buffers of an unfinished pass, and allocate the file again if it was removed."""
        self._free = deque(range(self._count))
        if not self._remove.alive:
            self._allocate()

    def offset(self, canvas: Bytes) -> int:
        """Return the position of a part of a buffer in the file."""
        return _address(canvas) - _address(self._memory)

    def close(self) -> None:
        """Remove the file; mapped memory stays valid until it is released."""
        self._remove()


BatchBuffers = BufferPool | SharedBuffers


def map_shared(path: str) -> Bytes:
    """Map the file of SharedBuffers."""
    with Path(path).open("r+b") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)


def allocate_pinned(shape: tuple[int, ...]) -> Bytes:
    """Return pinned memory, which torch reuses after it is released; pageable memory if none can be pinned."""
    import torch  # noqa: PLC0415  indexing and decoding work without it

    try:
        return torch.empty(shape, dtype=torch.uint8, pin_memory=True).numpy()
    except RuntimeError:  # no GPU, or the limit of pinned memory is reached
        return _allocate_array(shape)


def _allocate_array(shape: tuple[int, ...]) -> Bytes:
    return np.empty(shape, np.uint8)


def _copy(canvas: Bytes, allocate: Allocate) -> Bytes:
    copy = allocate(canvas.shape)
    np.copyto(copy, canvas)
    return copy


def _address(array: Bytes) -> int:
    return int(array.__array_interface__["data"][0])


def _allocate_file(size: int) -> str:
    for folder in (_SHM, tempfile.gettempdir()):
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
        f"worker processes need {format_size(size)} of shared memory, more than /dev/shm and the temporary folder have",
        "use threads, a smaller batch or less prefetch, or free some space",
    )


def _remove_file(path: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked worker
        Path(path).unlink(missing_ok=True)
