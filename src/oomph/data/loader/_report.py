"""`LoaderReport`: measured times and memory of a loader, and advice if it is the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass

from ...units import format_size
from .._index import ImageIndex
from ..decoding import load_imagecodecs, load_simplejpeg
from ..headers import ImageFlag
from ._autotuner import MIN_WAIT_FRACTION, Autotuner
from ._cached_decoder import MAX_CACHED_SIZES, DecodeStats
from ._plan import OFF, LoaderPlan
from ._timings import Timings

_MIN_BUDGET_WAIT_FRACTION = 0.25  # of the threads' time, above which a larger budget would help
_MAX_ADVICE = 2
_SAMPLED_HEADERS = 64


@dataclass(frozen=True)
class LoaderMeasurement:
    """Measured peak memory of a loader, in bytes.

    Attributes:
        decoding: bytes admitted by the budget at once, according to the headers.
        batches: allocated buffers for batches.
        cache: entries in the cache.
        workers: private memory of the worker processes.
        process: growth of this process since the loader was created, including the memory of a model.
    """

    decoding: int
    batches: int
    cache: int
    workers: int
    process: int


@dataclass(frozen=True)
class LoaderReport:
    """Measurements of a loader so far.

    Attributes:
        plan: the current plan, after tuning.
        measured: measured memory, to compare with `plan.memory`.
        total: times of all batches.
        recent: times of the last batches, without the start of the pass.
        bottleneck: one sentence if the consumer waits for data: how much, and what would help. None otherwise.
    """

    plan: LoaderPlan
    measured: LoaderMeasurement
    total: Timings
    recent: Timings
    bottleneck: str | None

    def __str__(self) -> str:
        predicted, growth = format_size(self.plan.peak), format_size(self.measured.process)
        lines = [
            f"memory: at most {predicted} predicted; the whole process grew by {growth}",
            f"threads: {self.plan.threads}; {self.recent.wait_fraction:.0%} of the time was spent waiting for data",
        ]
        return "\n".join([*lines, self.bottleneck] if self.bottleneck else lines)


def describe_bottleneck(tuner: Autotuner, index: ImageIndex) -> str | None:
    """Return one sentence if the consumer waits for data: how much, and what would help most; None otherwise."""
    plan, recent, decoded = tuner.plan, tuner.meter.recent, tuner.decoder.stats
    if not recent.batches or recent.wait_fraction <= MIN_WAIT_FRACTION:
        return None
    advice = (
        _advise_threads(plan),
        _advise_budget(plan, recent),
        _advise_builder(plan, tuner.meter.total, decoded),
        _advise_cache(plan, decoded, tuner.full_cache_bytes),
        _advise_files(plan, decoded, index),
        "a smaller image size",
    )
    helpful = ", or ".join([text for text in advice if text is not None][:_MAX_ADVICE])
    return f"{recent.wait_fraction:.0%} of the time is spent waiting for data; this would help: {helpful}"


def _advise_threads(plan: LoaderPlan) -> str | None:
    is_tuned = plan.options.threads is None and (not plan.workers or plan.threads < plan.workers)
    if is_tuned or plan.threads >= plan.resources.cores:
        return None
    return f"more {'workers' if plan.workers else 'threads'} ({plan.threads} on {plan.resources.cores} cores)"


def _advise_budget(plan: LoaderPlan, recent: Timings) -> str | None:
    if recent.budget_wait_seconds <= recent.work_seconds * _MIN_BUDGET_WAIT_FRACTION:
        return None
    return f"a budget above {format_size(plan.budget)}, for which threads are waiting"


def _advise_builder(plan: LoaderPlan, total: Timings, decoded: DecodeStats) -> str | None:
    """Advise a faster builder if most of the time is not spent decoding."""
    busy = total.work_seconds - total.budget_wait_seconds
    if plan.workers or busy <= 0 or decoded.seconds > busy / 2 or not decoded.images:
        return None
    return "a faster sample builder, or LoaderOptions(workers=…) if it holds the GIL"


def _advise_cache(plan: LoaderPlan, decoded: DecodeStats, full_cache_bytes: int) -> str | None:
    if plan.cache != OFF or not decoded.images or decoded.sizes > MAX_CACHED_SIZES:
        return None
    if plan.options.cache is None and full_cache_bytes < min(plan.resources.memory // 2, plan.resources.shm):
        return "a cache in memory, which starts with the second pass"
    return f"a cache on a disk with {format_size(full_cache_bytes)}: LoaderOptions(cache=Cache(folder, cap))"


def _advise_files(plan: LoaderPlan, decoded: DecodeStats, index: ImageIndex) -> str | None:
    headers = [index[number] for number in index.usable[:_SAMPLED_HEADERS].tolist()]
    if sum(bool(header.flags & ImageFlag.PROGRESSIVE) for header in headers) > len(headers) / 2:
        return "baseline instead of progressive JPEGs, written by transcode(source, target)"
    uses_windows = not decoded.images and not plan.workers  # only windows of JPEGs use simplejpeg
    missing = {"tiff"} if load_imagecodecs() is None else set()
    missing |= {"jpeg"} if load_simplejpeg() is None and uses_windows else set()
    return "the extra oomph[images]" if missing & {header.format for header in headers} else None
