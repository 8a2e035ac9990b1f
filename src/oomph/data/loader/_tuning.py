"""Threads by what batches show: is their consumer waiting, and would more hands help?"""

from __future__ import annotations

import math
from dataclasses import dataclass

WAITS = 0.1  # share of its time from which a consumer is said to wait
_NEVER = 0.02  # below this it doesn't, and threads can be given back
_SPARE = 1.25  # threads beyond what the mean needs: images differ
_GAIN = 0.05  # what more threads must bring


@dataclass(frozen=True)
class Timings:
    """What some batches took, in seconds.

    Attributes:
        batches: how many they were.
        waited: by the consumer, for batches.
        used: by the consumer, for its own work.
        worked: by all threads together, for samples.
        queued: of that, waiting for bytes of the budget.
    """

    batches: int = 0
    waited: float = 0.0
    used: float = 0.0
    worked: float = 0.0
    queued: float = 0.0

    @property
    def waiting(self) -> float:
        """The share of its time that the consumer waited."""
        return self.waited / max(self.waited + self.used, 1e-9)

    @property
    def each(self) -> float:
        """Seconds from one batch to the next."""
        return (self.waited + self.used) / max(self.batches, 1)

    def since(self, earlier: Timings) -> Timings:
        """What came after an earlier pace."""
        return Timings(
            self.batches - earlier.batches,
            self.waited - earlier.waited,
            self.used - earlier.used,
            self.worked - earlier.worked,
            self.queued - earlier.queued,
        )


class Tuner:
    """How many threads, between 1 and a most, from paces of batches.

    Threads are added while the consumer waits and given back while it doesn't; when more of them brought nothing, that
    is undone and not tried again.
    """

    def __init__(self, threads: int, most: int) -> None:
        self.threads, self.most = threads, max(most, threads)
        self._least = 1
        self._tried: tuple[int, float] | None = None  # threads before the last were added, and seconds a batch then

    @property
    def exhausted(self) -> bool:
        """Whether there are no more threads to try."""
        return self._tried is None and self.threads >= self.most

    def begin_again(self) -> None:
        """A pass is over: what it needed at least, the next one may not, as when images were decoded once and kept."""
        self._least = 1

    def judge(self, pace: Timings) -> int:
        """The number of threads from now on."""
        if self._tried is not None:
            fewer, then = self._tried
            self._tried = None
            if pace.each > then * (1 - _GAIN):
                self.threads = self.most = fewer
                return self.threads
            self._least = fewer + 1
        if pace.waiting > WAITS and self.threads < self.most:
            self._tried = (self.threads, pace.each)
            self.threads = min(max(self._needed(pace), self.threads + 1), self.most)
        elif pace.waiting < _NEVER:
            self.threads = max(min(self.threads, self._needed(pace)), self._least)
        return self.threads

    def _needed(self, pace: Timings) -> int:
        """Threads that make samples as fast as the consumer uses them up."""
        busy = max(pace.worked - pace.queued, 0.0)
        return min(math.ceil(busy / max(pace.used, 1e-9) * _SPARE), self.most) if busy else 1
