"""Steers a loader while it loads: threads and cache by what batches show, memory as it is measured."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import OomphError
from .._cache import Cache
from .._index import ImageIndex
from .._room import read_resources
from ._account import Course, LoaderMeasurement, LoadReport, bottleneck
from ._admission import Admission
from ._gauge import Gauge
from ._meter import Meter
from ._pays import Case, judge_cache
from ._plan import LoaderPlan
from ._ring import Slots
from ._run import Desk, Run
from ._shelf import Shelf
from ._tuning import Timings, Tuner


class Pilot:
    """What a loader learns from its own batches.

    Args:
        plan: how it begins.
        shelf: where its whole images come from, and where a cache is put.
        copies: bytes of copies of all images.
        repeats: whether more passes over the same images are to be expected; after one, they are in any case.
    """

    def __init__(self, plan: LoaderPlan, shelf: Shelf, copies: int, *, repeats: bool) -> None:
        self.plan = plan
        self._shelf, self._copies, self._repeats = shelf, copies, repeats
        self._tuner, self._meter = Tuner(plan.threads, plan.most), Meter()
        self._gauge = Gauge(forked=plan.start == "fork")
        self._asks_cache = plan.options.cache is None and plan.cache == "off" and not plan.workers
        self._admission: Admission | None = None
        self._highest = 0

    @property
    def pace(self) -> Timings:
        """The time of all batches."""
        return self._meter.total

    def begin(self, desk: Desk, admission: Admission) -> None:
        """A pass begins."""
        self._note()
        self._admission = admission
        self._meter.begin(desk, admission, self.plan.prefetch + 1)

    def end(self, workers: Iterable[int]) -> None:
        """A pass went to its end."""
        self._repeats = True
        self._tuner.begin_again()
        if self.plan.start == "fork":
            self.look(workers)

    def look(self, workers: Iterable[int]) -> None:
        """Note what is held now."""
        self._gauge.look(workers)

    def waited(self, seconds: float) -> None:
        """The consumer waited for a batch."""
        self._meter.waited(seconds)

    def used(self, seconds: float, run: Run, workers: Iterable[int]) -> None:
        """The consumer is done with a batch."""
        window = self._meter.used(seconds)
        if window is None:
            return
        self._gauge.look(workers if self.plan.start != "fork" else ())  # slow: between passes, and when somebody asks
        before = self._tuner.threads
        after = self._tuner.judge(window)
        if after != before:
            run.resize(after)
            self.plan = self.plan.with_threads(after, _why(window, more=after > before))
            self._meter.changed()
        elif self._asks_cache and self._repeats and self._tuner.exhausted:
            self._consider_cache(window)

    def _consider_cache(self, window: Timings) -> None:
        verdict = judge_cache(Case(window, self._shelf.decoded, self._copies, read_resources()))
        self._asks_cache = verdict.open
        self.plan = self.plan.with_cache(0, verdict.why)
        if verdict.bytes:
            try:
                cache = Cache(None, verdict.bytes)
            except OomphError as error:  # /dev/shm filled up since we looked
                self.plan = self.plan.with_cache(0, error.why)
                return
            self._shelf.cache = cache
            self.plan = self.plan.with_cache(cache.cap, verdict.why)
            self._meter.changed()

    def report(self, index: ImageIndex, slots: Slots, workers: Iterable[int]) -> LoadReport:
        """What was learned so far."""
        self._note()
        self._gauge.look(workers)
        plan, recent, cache = self.plan, self._meter.last, self._shelf.cache
        measured = LoaderMeasurement(
            decoding=self._highest,
            batches=slots.nbytes,
            copies=cache.used if cache is not None else 0,
            workers=self._gauge.workers,
            process=self._gauge.grown,
        )
        course = Course(plan, index, recent, self.pace, self._shelf.decoded, self._copies)
        return LoadReport(plan, measured, self.pace, recent, bottleneck(course))

    def _note(self) -> None:
        if self._admission is not None:
            self._highest = max(self._highest, self._admission.highest)


def _why(window: Timings, *, more: bool) -> str:
    if more:
        return f"{window.waiting:.0%} of the consumer's time was spent waiting"
    return f"the others brought nothing while {window.waiting:.0%} of the consumer's time was spent waiting"
