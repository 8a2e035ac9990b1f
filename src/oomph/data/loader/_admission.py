"""A budget of bytes: work is let in when what it will allocate still fits, first come, first served.

What a thread frees, the C library may keep for that thread's next allocation. Such bytes count as kept until the
library is asked to give them back, which happens when the budget would be passed otherwise.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache


class Closed(Exception):
    """Nobody is let in any more."""


class Admission:
    """Bytes that may be in use at once."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self.highest = 0
        self.queued = 0.0  # seconds that threads waited for bytes
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._kept = 0

    @contextmanager
    def take(self, count: int) -> Iterator[None]:
        """Hold some bytes for the time of a `with` block, waiting until they are free.

        One that is larger than the budget waits until it is alone. Waiting is in order, so a large one is not passed
        by small ones for ever.
        """
        self._acquire(count)
        try:
            yield
        finally:
            with self._changed:
                self.used -= count
                self._kept += count
                self._changed.notify_all()

    def _acquire(self, count: int) -> None:
        ticket, began = object(), time.perf_counter()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while not self._closed and not self._may(ticket, count):
                    self._changed.wait()
                if self._closed:
                    raise Closed
                if self.used + self._kept + count > self.budget:
                    trim()()
                    self._kept = 0
                self.queued += time.perf_counter() - began
                self.used += count
                self.highest = max(self.highest, self.used)
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _may(self, ticket: object, count: int) -> bool:
        return self._waiting[0] is ticket and (self.used + count <= self.budget or not self.used)

    def close(self) -> None:
        """Turn everybody away."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


@cache
def trim() -> Callable[[], object]:
    """The C library's function that gives freed memory back to the system; glibc has one, others need none."""
    try:
        function = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda: None
    function.argtypes = [ctypes.c_size_t]
    return lambda: function(0)
