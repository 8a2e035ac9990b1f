"""How long batches were waited for, some at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ._tuning import Timings

_FIRST, _LONGEST = 8, 256  # batches that are judged together


class _Worked(Protocol):
    worked: float


class _Queued(Protocol):
    queued: float


class Meter:
    """Counts the time of a loader's batches, and hands it out in windows.

    The first batches of a pass, and those after something changed, are in no window: then the consumer waits whatever
    the number of threads.
    """

    def __init__(self) -> None:
        self._own = self._mark = self.last = Timings()
        self._desk: _Worked | None = None
        self._admission: _Queued | None = None
        self._window = _FIRST
        self._skip = self._lead = 0

    def begin(self, desk: _Worked, admission: _Queued, lead: int) -> None:
        """A pass begins; so many batches until it is under way."""
        self._own = self._mark = self.total
        self._desk, self._admission, self._skip, self._lead = desk, admission, lead, lead

    @property
    def total(self) -> Timings:
        """Everything so far."""
        worked = self._desk.worked if self._desk is not None else 0.0
        queued = self._admission.queued if self._admission is not None else 0.0
        return replace(self._own, worked=self._own.worked + worked, queued=self._own.queued + queued)

    def waited(self, seconds: float) -> None:
        """The consumer waited for a batch."""
        self._own = replace(self._own, waited=self._own.waited + seconds)

    def used(self, seconds: float) -> Timings | None:
        """The consumer is done with a batch; the pace of some batches, when a window is complete."""
        self._own = replace(self._own, batches=self._own.batches + 1, used=self._own.used + seconds)
        if self._skip:
            self._skip -= 1
            self._mark = self.total
            return None
        since = self.total.since(self._mark)
        self.last = since if since.batches >= _FIRST or not self.last.batches else self.last
        if since.batches < self._window:
            return None
        self._mark = self.total
        self._window = min(self._window * 2, _LONGEST)
        return since

    def changed(self) -> None:
        """Something was changed: look closely again, after what was made before."""
        self._window, self._skip = _FIRST, self._lead
