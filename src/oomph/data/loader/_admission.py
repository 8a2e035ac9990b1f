"""A budget of bytes: work is let in when what it will allocate still fits, first come, first served."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Closed(Exception):  # noqa: N818  not an error: the loader is being closed
    """Nobody is let in any more."""


class Admission:
    """Bytes that may be in use at once."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self.highest = 0
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()
        self._closed = False

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
                self._changed.notify_all()

    def _acquire(self, count: int) -> None:
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while not self._closed and not self._may(ticket, count):
                    self._changed.wait()
                if self._closed:
                    raise Closed
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
