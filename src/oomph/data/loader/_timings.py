"""Times of batches: waiting, the consumer's work, and the work of the threads."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

_MIN_WINDOW, _MAX_WINDOW = 8, 256  # batches that are judged together


@dataclass
class Timings:
    """Durations of some batches, in seconds.

    Attributes:
        batches: number of batches.
        wait_seconds: time that the consumer waited for batches.
        consumer_seconds: time that the consumer spent on its own work.
        work_seconds: time that all threads together spent on samples.
        budget_wait_seconds: the part of it spent waiting for the byte budget.
    """

    batches: int = 0
    wait_seconds: float = 0.0
    consumer_seconds: float = 0.0
    work_seconds: float = 0.0
    budget_wait_seconds: float = 0.0

    @property
    def wait_fraction(self) -> float:
        """Fraction of the consumer's time spent waiting."""
        return self.wait_seconds / max(self.wait_seconds + self.consumer_seconds, 1e-9)

    @property
    def seconds_per_batch(self) -> float:
        """Seconds from one batch to the next."""
        return (self.wait_seconds + self.consumer_seconds) / max(self.batches, 1)

    def since(self, earlier: Timings) -> Timings:
        """Return the difference to earlier timings."""
        return Timings(*(now - before for now, before in zip(astuple(self), astuple(earlier), strict=True)))


class WaitMeter:
    """Collects the times of all batches, and returns them in windows.

    The first batches of a pass, and those after a change, belong to no window, because the consumer then waits
    whatever the number of threads.
    """

    def __init__(self) -> None:
        self.total = Timings()
        self.recent = Timings()  # of the last batches
        self._window_start = Timings()
        self._window = _MIN_WINDOW
        self._ignored = self._lead = 0

    def start_pass(self, lead: int) -> None:
        """Ignore the first batches of a pass."""
        self._window_start, self._ignored, self._lead = replace(self.total), lead, lead

    def add_batch(self, seconds: float) -> Timings | None:
        """Add the time that the consumer used a batch; return the timings of a window if it is complete."""
        self.total.batches += 1
        self.total.consumer_seconds += seconds
        if self._ignored:
            self._ignored -= 1
            self._window_start = replace(self.total)
            return None
        window = self.total.since(self._window_start)
        if window.batches >= _MIN_WINDOW or not self.recent.batches:
            self.recent = window
        if window.batches < self._window:
            return None
        self._window_start = replace(self.total)
        self._window = min(self._window * 2, _MAX_WINDOW)
        return window

    def restart(self) -> None:
        """Start with short windows again after a change, ignoring batches that were made before it."""
        self._window, self._ignored = _MIN_WINDOW, self._lead
