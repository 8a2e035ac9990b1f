"""Memory for batches, prepared once and used again when nobody looks at it any more."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
BatchAllocator = Callable[[tuple[int, ...]], Bytes]  # memory for a batch


class Slots(Protocol):
    """Where batches are painted."""

    def lend(self, shape: tuple[int, ...]) -> Bytes:
        """Memory for a batch."""
        ...

    def hand_out(self, canvas: Bytes, room: BatchAllocator | None = None) -> Bytes:
        """The batch as its consumer may keep it, for as long as it likes; in memory of a kind, if there is one."""
        ...

    def renew(self) -> None:
        """A pass begins, and no other one is under way."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all that was made."""
        ...


class Ring:
    """Slots of the same size, in this process.

    A slot is lent to a batch; when the last array or tensor that looks at it is gone, it comes back by itself. When
    all are out because the consumer keeps batches, more are made: a loader never waits for memory that its consumer
    holds, and never writes into it.
    """

    def __init__(self, count: int, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self.made = 0
        self._free: deque[Bytes] = deque(self._make() for _ in range(count))

    def _make(self) -> Bytes:
        self.made += 1
        slot = np.empty(self._size, np.uint8)
        slot.fill(0)  # touched now, so that what a loader holds is held from the start
        return slot

    def lend(self, shape: tuple[int, ...]) -> Bytes:
        """A slot in a shape; it comes back when the array that is returned, and all made of it, are gone."""
        try:
            slot = self._free.popleft()
        except IndexError:
            with self._lock:
                slot = self._make()
        # All views of an array hold on to the first that is no view of another; through a buffer, that is this one.
        held = np.frombuffer(slot.data[: int(np.prod(shape))], np.uint8)
        weakref.finalize(held, self._free.append, slot).atexit = False
        return held.reshape(shape)

    def hand_out(self, canvas: Bytes, room: BatchAllocator | None = None) -> Bytes:
        """The memory itself, or a copy in memory of a kind."""
        return canvas if room is None else copied(canvas, room)

    def renew(self) -> None:
        """Slots come back by themselves."""

    @property
    def nbytes(self) -> int:
        """Bytes of all slots that were made."""
        return self.made * self._size


def copied(canvas: Bytes, room: BatchAllocator) -> Bytes:
    """A copy in memory of a kind."""
    copy = room(canvas.shape)
    np.copyto(copy, canvas)
    return copy
