"""One pass over an epoch: threads make samples ahead of the consumer."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import OomphError
from ._admission import Admission, Closed
from ._maker import Spoiled
from ._order import BatchSpec, following
from ._ring import Bytes, Slots

Perform = Callable[[int, Bytes], Any]
PerformAll = Callable[[list[int], Bytes], list[Any]]


@dataclass(frozen=True)
class Hand:
    """What a thread does with a sample.

    Attributes:
        perform: make one sample on its canvas; raises Spoiled.
        perform_all: make several at once, with a Spoiled in the place of one that can't be made.
        most: how many of them.
    """

    perform: Perform
    perform_all: PerformAll | None = None
    most: int = 1


_BUSY = 1.5  # lots that there should be for each hand
_PATIENCE = 1000  # samples in a row that may be unusable


@dataclass(eq=False)
class Job:
    """A batch in work.

    Attributes:
        number: its place in the epoch.
        canvas: where it is painted.
        indices: its samples; replaced ones under their own number.
        targets: what the recipe returned for each.
        kept: rows that are part of it.
        missing: rows that aren't done yet.
        fault: the error of the first row that had one.
    """

    number: int
    canvas: Bytes
    indices: NDArray[np.int64]
    targets: list[Any]
    kept: NDArray[np.bool_]
    missing: int
    fault: tuple[int, BaseException] | None = None


@dataclass(frozen=True)
class Work:
    """What a pass needs to know.

    Attributes:
        plan: the epoch's batches.
        ahead: batches that may be in work at once.
        slots: memory for them.
        admission: the budget, told when the pass is over.
        aside: images that turned out to be unusable, with reasons; shared by all passes.
        replace: a sample that is unusable is replaced by the next one in the epoch; left out otherwise.
    """

    plan: Sequence[BatchSpec]
    ahead: int
    slots: Slots
    admission: Admission
    skipped: dict[int, str]
    replace: bool


def lot_of(batch: int, ahead: int, hands: int, most: int) -> int:
    """Rows to hand out at once: as many as leave work for all hands in the batches that are made ahead, and alike."""
    lot = max(min(int(batch * ahead / (max(hands, 1) * _BUSY)), most, batch), 1)
    return math.ceil(batch / math.ceil(batch / lot))


class Desk:
    """Hands out work in order and collects what is done."""

    def __init__(self, work: Work, start: int) -> None:
        self.work = work
        self.wanted = start  # the batch the consumer gets next
        self._opened, self._row = start, 0
        self._jobs: dict[int, Job] = {}
        self._changed = threading.Condition()
        self.closed = False
        self.worked = 0.0  # seconds that threads spent on rows, waiting for bytes included
        self._hands, self._present = 0, set[int]()

    def call(self, hands: int) -> list[int]:
        """Say how many threads shall work; the numbers of those to be started. Others leave when they are done."""
        with self._changed:
            self._hands = hands
            missing = [number for number in range(hands) if number not in self._present]
            self._present.update(missing)
            self._changed.notify_all()
            return missing

    def next_task(self, hand: int = 0, most: int = 1) -> tuple[Job, range] | None:
        """The next rows to make, as soon as there is room for their batch; None when the thread has nothing left."""
        with self._changed:
            task = self._next(hand, most)
            if task is None:
                self._present.discard(hand)
            return task

    def _next(self, hand: int, most: int) -> tuple[Job, range] | None:
        while hand < self._hands and not self.closed and self._opened < len(self.work.plan):
            job = self._jobs.get(self._opened)
            if job is None and self._opened < self.wanted + self.work.ahead:
                job = self._open()
            if job is None:
                self._changed.wait()
                continue
            lot = lot_of(len(job.indices), self.work.ahead, self._hands, most)
            rows = range(self._row, min(self._row + lot, len(job.indices)))
            self._row = rows.stop
            if self._row == len(job.indices):
                self._opened, self._row = self._opened + 1, 0
            return job, rows
        return None

    def _open(self) -> Job:
        planned = self.work.plan[self._opened]
        count = len(planned.indices)
        canvas = self.work.slots.lend((count, planned.height, planned.width, 3))
        job = Job(self._opened, canvas, planned.indices.copy(), [None] * count, np.ones(count, np.bool_), count)
        self._jobs[self._opened] = job
        return job

    def make_all(self, job: Job, rows: range, hand: Hand) -> None:
        """Make rows, or what stands in for them."""
        if hand.perform_all is None or len(rows) == 1:
            for row in rows:
                self.make(job, row, hand.perform)
            return
        samples = [int(job.indices[row]) for row in rows]
        made = hand.perform_all(samples, job.canvas[rows.start : rows.stop])
        for row, one in zip(rows, made, strict=True):
            if isinstance(one, Spoiled):
                self.make(job, row, hand.perform)
            else:
                job.targets[row] = one

    def make(self, job: Job, row: int, perform: Perform) -> None:
        """Make a row, or what stands in for it."""
        for sample in islice(following(self.work.plan, job.number, row), _PATIENCE):
            try:
                job.targets[row] = perform(sample, job.canvas[row])
            except Spoiled as spoiled:
                self.work.skipped[spoiled.image] = spoiled.reason
            else:
                job.indices[row] = sample
                return
            if not self.work.replace:
                job.kept[row] = False
                return
        last = next(reversed(self.work.skipped.values()), "nothing is left")
        raise OomphError(f"no sample can be made: all are set aside (the last one: {last})", "look at loader.aside()")

    def done(self, job: Job, rows: range, error: BaseException | None, seconds: float = 0.0) -> None:
        """Note that rows are finished."""
        with self._changed:
            self.worked += seconds
            if error is not None and (job.fault is None or rows.start < job.fault[0]):
                job.fault = (rows.start, error)
            job.missing -= len(rows)
            if not job.missing:
                self._changed.notify_all()

    def take(self) -> Job | None:
        """The next batch, as soon as it is whole; None at the end."""
        with self._changed:
            if self.wanted >= len(self.work.plan):
                return None
            self._changed.wait_for(lambda: self.closed or self._whole())
            if self.closed:
                return None
            job = self._jobs.pop(self.wanted)
            self.wanted += 1
            self._changed.notify_all()
            return job

    def _whole(self) -> bool:
        job = self._jobs.get(self.wanted)
        return job is not None and not job.missing

    def close(self) -> None:
        """Stop handing out work."""
        with self._changed:
            self.closed = True
            self._jobs.clear()
            self._changed.notify_all()
        self.work.admission.close()


def _labour(desk: Desk, number: int, hand: Hand) -> None:
    """What a thread does until there is nothing left, or fewer are wanted."""
    while (task := desk.next_task(number, hand.most)) is not None:
        job, rows = task
        error: BaseException | None = None
        began = time.perf_counter()
        try:
            desk.make_all(job, rows, hand)
        except Closed:
            return
        except BaseException as caught:  # noqa: BLE001  it is raised where the batch is asked for
            error = caught
        desk.done(job, rows, error, time.perf_counter() - began)
        # The thread may wait for long now, and what it still names would keep the batch's memory.
        task = job = error = None  # type: ignore[assignment]


class Run:
    """Threads at a desk; stops them when it is closed, dropped or at exit.

    Args:
        desk: where work is handed out.
        hands: what the first, second, … thread does.
        count: how many threads begin; all of them, without.
    """

    def __init__(self, desk: Desk, hands: Sequence[Hand], count: int | None = None) -> None:
        self.desk = desk
        self._hands = hands
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # whoever sends batches ahead resizes, and whoever trains may close meanwhile
        self._finish = weakref.finalize(self, _stop, desk, self._threads)
        self.resize(len(hands) if count is None else count)

    def resize(self, hands: int) -> None:
        """Have more or fewer threads from now on; what is made, and in which order, stays the same."""
        hands = min(hands, len(self._hands))
        with self._lock:
            if self.desk.closed:
                return
            self._threads[:] = [thread for thread in self._threads if thread.is_alive()]
            for number in self.desk.call(hands):
                arguments = (self.desk, number, self._hands[number])
                thread = threading.Thread(target=_labour, args=arguments, name=f"oomph-data-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """Stop the threads and wait for what they are decoding, also where somebody else is stopping them already."""
        self.desk.close()
        with self._lock:
            threads = list(self._threads)
        self._finish()
        _join(threads)


def _stop(desk: Desk, threads: list[threading.Thread]) -> None:
    desk.close()
    _join(threads)


def _join(threads: list[threading.Thread]) -> None:
    if threading.current_thread() in threads:
        return  # the collector ran in one of them, perhaps while it held what another waits for
    for thread in list(threads):
        thread.join()
