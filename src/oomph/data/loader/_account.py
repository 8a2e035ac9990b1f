"""What a loader did, beside what was predicted of it, and what would make it faster."""

from __future__ import annotations

from dataclasses import dataclass

from ...units import format_size
from .._index import ImageIndex
from ..decoding import codecs, turbo
from ..headers import Flag
from ._pays import SIZES
from ._plan import OFF, LoaderPlan
from ._shelf import Decoded
from ._tuning import WAITS, Timings

_HALF = 0.5
_QUEUES = 0.25  # share of the threads' time from which the budget is what they wait for


@dataclass(frozen=True)
class LoaderMeasurement:
    """What was held at most, in bytes.

    Attributes:
        decoding: let in at once under the budget, by what headers say.
        batches: memory of batches that was made.
        copies: kept by the cache.
        workers: private memory of worker processes.
        process: how much more this process held than when the loader was made; a model's memory counts too.
    """

    decoding: int
    batches: int
    copies: int
    workers: int
    process: int


@dataclass(frozen=True)
class LoadReport:
    """What a loader did so far.

    Attributes:
        plan: how it loads now; threads and cache as they were tuned.
        measured: what it held at most, to be compared with `plan.memory`.
        pace: seconds of all batches.
        recent: seconds of the last ones, without those at the start of a pass.
        bottleneck: one sentence when the consumer waits for data: how much, and what would help; None otherwise.
    """

    plan: LoaderPlan
    measured: LoaderMeasurement
    pace: Timings
    recent: Timings
    bottleneck: str | None

    def __str__(self) -> str:
        peak, grown = format_size(self.plan.peak), format_size(self.measured.process)
        lines = [
            f"loading takes at most {peak}; the process grew by {grown}, all that it does included",
            f"{self.plan.threads} threads; {self.recent.waiting:.0%} of the time was spent waiting for data",
        ]
        return "\n".join([*lines, self.bottleneck] if self.bottleneck else lines)


@dataclass(frozen=True)
class Course:
    """What the sentence on a bottleneck is made of."""

    plan: LoaderPlan
    index: ImageIndex
    recent: Timings
    total: Timings
    decoded: Decoded
    copies: int


def bottleneck(course: Course) -> str | None:
    """One sentence when data are waited for: how much, and what would help most."""
    waiting = course.recent.waiting
    if not course.recent.batches or waiting <= WAITS:
        return None
    helps = [text for text in (_threads(course), _budget(course), _recipe(course), _cache(course)) if text]
    helps += [text for text in (_packages(course), "a smaller image size") if text]
    return f"data are waited for {waiting:.0%} of the time; what would help: {', or '.join(helps[:2])}"


def _threads(course: Course) -> str | None:
    plan = course.plan
    tuned = plan.options.threads is None and (not plan.workers or plan.threads < plan.workers)
    if tuned or plan.threads >= plan.room.cores:
        return None
    return f"more {'workers' if plan.workers else 'threads'} ({plan.threads} for {plan.room.cores} cores)"


def _budget(course: Course) -> str | None:
    if course.recent.queued <= course.recent.worked * _QUEUES:
        return None
    return f"a budget above {format_size(course.plan.budget)}, which threads wait for"


def _recipe(course: Course) -> str | None:
    """The recipe's own time, where it is most of a sample's."""
    busy = course.total.worked - course.total.queued
    if course.plan.workers or busy <= 0 or course.decoded.seconds > busy * _HALF or not course.decoded.pictures:
        return None
    return "a faster recipe, or LoaderOptions(workers=…) if it keeps Python busy"


def _cache(course: Course) -> str | None:
    plan, decoded = course.plan, course.decoded
    if plan.cache != OFF or not decoded.pictures or decoded.boxes > SIZES:
        return None
    if plan.options.cache is None and course.copies < min(plan.room.memory // 2, plan.room.shm):
        return "copies in memory, which are kept from the second pass on"
    return f"a cache on a disk with {format_size(course.copies)}: LoaderOptions(cache=Cache(folder, cap))"


def _packages(course: Course) -> str | None:
    some = [course.index[number] for number in course.index.usable[:64].tolist()]
    if sum(bool(header.flags & Flag.PROGRESSIVE) for header in some) > len(some) * _HALF:
        return "JPEGs that are not progressive, as transcode(source, target) writes them"
    windows = (
        not course.decoded.pictures and not course.plan.workers
    )  # whole JPEGs take the same way with the extra and without
    missing = {"tiff"} if codecs() is None else set()
    missing |= {"jpeg"} if turbo() is None and windows else set()
    return "the extra oomph[images]" if missing & {header.format for header in some} else None
