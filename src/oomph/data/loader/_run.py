"""One pass over an epoch: threads make samples ahead of the consumer."""

from __future__ import annotations

import threading
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
from ._order import Planned, following
from ._ring import Bytes, Slots

Perform = Callable[[int, Bytes], Any]
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

    plan: Sequence[Planned]
    ahead: int
    slots: Slots
    admission: Admission
    aside: dict[int, str]
    replace: bool


class Desk:
    """Hands out work in order and collects what is done."""

    def __init__(self, work: Work, start: int) -> None:
        self.work = work
        self.wanted = start  # the batch the consumer gets next
        self._opened, self._row = start, 0
        self._jobs: dict[int, Job] = {}
        self._changed = threading.Condition()
        self.closed = False

    def next_task(self) -> tuple[Job, int] | None:
        """The next row to make, as soon as there is room for its batch; None when there is nothing left to do."""
        with self._changed:
            while not self.closed and self._opened < len(self.work.plan):
                job = self._jobs.get(self._opened)
                if job is None and self._opened < self.wanted + self.work.ahead:
                    job = self._open()
                if job is None:
                    self._changed.wait()
                    continue
                row, self._row = self._row, self._row + 1
                if self._row == len(job.indices):
                    self._opened, self._row = self._opened + 1, 0
                return job, row
        return None

    def _open(self) -> Job:
        planned = self.work.plan[self._opened]
        count = len(planned.indices)
        canvas = self.work.slots.lend((count, planned.height, planned.width, 3))
        job = Job(self._opened, canvas, planned.indices.copy(), [None] * count, np.ones(count, np.bool_), count)
        self._jobs[self._opened] = job
        return job

    def make(self, job: Job, row: int, perform: Perform) -> None:
        """Make a row, or what stands in for it."""
        for sample in islice(following(self.work.plan, job.number, row), _PATIENCE):
            try:
                job.targets[row] = perform(sample, job.canvas[row])
            except Spoiled as spoiled:
                self.work.aside[spoiled.image] = spoiled.reason
            else:
                job.indices[row] = sample
                return
            if not self.work.replace:
                job.kept[row] = False
                return
        last = next(reversed(self.work.aside.values()), "nothing is left")
        raise OomphError(f"no sample can be made: all are set aside (the last one: {last})", "look at loader.aside()")

    def done(self, job: Job, row: int, error: BaseException | None) -> None:
        """Note that a row is finished."""
        with self._changed:
            if error is not None and (job.fault is None or row < job.fault[0]):
                job.fault = (row, error)
            job.missing -= 1
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


def _labour(desk: Desk, perform: Perform) -> None:
    """What a thread does until there is nothing left."""
    while (task := desk.next_task()) is not None:
        job, row = task
        error: BaseException | None = None
        try:
            desk.make(job, row, perform)
        except Closed:
            return
        except BaseException as caught:  # noqa: BLE001  it is raised where the batch is asked for
            error = caught
        desk.done(job, row, error)
        # The thread may wait for long now, and what it still names would keep the batch's memory.
        task = job = error = None  # type: ignore[assignment]


class Run:
    """Threads at a desk; stops them when it is closed, dropped or at exit."""

    def __init__(self, desk: Desk, performers: Sequence[Perform]) -> None:
        self.desk = desk
        self._threads = [
            threading.Thread(target=_labour, args=(desk, perform), name=f"oomph-data-{number}", daemon=True)
            for number, perform in enumerate(performers)
        ]
        self._finish = weakref.finalize(self, _stop, desk, self._threads)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads and wait for what they are decoding."""
        self._finish()


def _stop(desk: Desk, threads: list[threading.Thread]) -> None:
    desk.close()
    if threading.current_thread() in threads:
        return  # the collector ran in one of them, perhaps while it held what another waits for
    for thread in threads:
        thread.join()
