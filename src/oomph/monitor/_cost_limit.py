"""A limit on the time that an expensive reading may take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class CostLimit:
    """Tells when an expensive reading is due again.

    Args:
        interval: Seconds between two readings, at least.
        fraction: Fraction of the time that the readings may take, at most.
    """

    def __init__(self, interval: float, fraction: float) -> None:
        self._interval, self._fraction = interval, fraction
        self._next_time = float("-inf")

    @property
    def is_due(self) -> bool:
        """True if the next reading may be taken."""
        return time.monotonic() >= self._next_time

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        """Measure a reading, which decides when the next one is due."""
        start = time.monotonic()
        try:
            yield
        finally:
            spent = time.monotonic() - start
            self._next_time = start + max(self._interval, spent / self._fraction)
