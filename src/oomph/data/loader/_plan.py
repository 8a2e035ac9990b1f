"""`plan_loader`: chooses threads or workers, prefetch, pinned memory and cache within the memory of the host."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import CannotFit, UsageError
from ...units import MIB, format_size, parse_size
from .._cache import Cache
from .._index import ImageIndex
from .._index_record import to_header
from .._loader_memory import (
    MIN_BUDGET_BYTES,
    LoaderMemory,
    LoaderWorkload,
    check_start_method,
    default_budget,
    predict_loader_memory,
)
from .._resources import HostResources, read_resources
from ..decoding import decode_cost, fit_size, stored_size
from ._sample_maker import over_budget

OFF = "off"
_DEFAULT_THREADS, _MAX_THREADS = 8, 32
_MIN_PREFETCH = 2
_THREAD_BYTES = 4 * MIB  # that glibc keeps per thread even after malloc_trim
_TYPICAL_PERCENTILE = 90  # of the images' decoding costs, for the number of threads
_COST_FIELDS = [
    "width", "height", "bands", "flags", "format", "dtype", "orientation", "coefficient_bytes", "restart_interval",
    "block_width", "block_height", "compression",
]  # fmt: skip


class PlanDecision(NamedTuple):
    """One decision of a plan: the setting, the chosen value, and the reason."""

    setting: str
    choice: str
    why: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.choice} ({self.why})"


@dataclass(frozen=True)
class LoaderOptions:
    """Requested settings of a loader; everything that is left out is chosen by the planner.

    Attributes:
        budget: bytes (or "256MB") that decoding may use at once.
        threads: exact number of decoding threads. Without it, the number is chosen and tuned.
        workers: maximum number of worker processes, for sample builders that hold the GIL. A thread drives each.
        start_method: how worker processes are started: "spawn", "forkserver" or "fork".
        prefetch: batches made ahead.
        pin_memory: copy batches to pinned memory on their way to a GPU.
        cache: a Cache for decoded images, or "off". Without it, a cache in memory is used if it pays off.
    """

    budget: int | str | None = None
    threads: int | None = None
    workers: int = 0
    start_method: str = "spawn"
    prefetch: int | None = None
    pin_memory: bool | None = None
    cache: Cache | str | None = None

    def __post_init__(self) -> None:
        check_start_method(self.start_method)
        if min(1 if value is None else value for value in (self.threads, self.prefetch)) < 1 or self.workers < 0:
            raise UsageError(
                "threads and prefetch must be 1 or more, workers 0 or more", "omit them to let them be chosen"
            )
        if isinstance(self.cache, str) and self.cache != OFF:
            raise UsageError(f"cache={self.cache!r} is not a cache", 'pass a Cache(folder, "20GB"), or "off"')


@dataclass(frozen=True)
class LoaderPlan:
    """Settings of a loader on this machine, and the memory that they need. Sizes are in bytes.

    Attributes:
        budget: bytes that decoding may use at once.
        threads: decoding threads at the start.
        max_threads: the most threads that tuning may use; the same number if it was requested.
        workers: worker processes; 0 for threads.
        start_method: how worker processes are started.
        prefetch: batches made ahead. There are two more buffers: one in use, and one in between.
        pin_memory: batches go to a GPU through pinned memory.
        cache: where decoded images are cached: "off", "memory" or "disk".
        cache_bytes: maximum size of the cache.
        memory: predicted peak of each part.
        resources: what was available when the plan was made.
        decisions: every decision with its reason.
        options: requested settings.
    """

    budget: int
    threads: int
    max_threads: int
    workers: int
    start_method: str
    prefetch: int
    pin_memory: bool
    cache: str
    cache_bytes: int
    memory: LoaderMemory
    resources: HostResources
    decisions: tuple[PlanDecision, ...]
    options: LoaderOptions

    @property
    def peak(self) -> int:
        """Host memory that loading adds at most."""
        return self.memory.total

    def why(self, setting: str) -> str:
        """Return the reason for a setting."""
        return next(decision.why for decision in self.decisions if decision.setting == setting)

    def with_threads(self, threads: int, why: str) -> LoaderPlan:
        """Return the plan with another number of threads."""
        return replace(self, threads=threads, decisions=self._decide("threads", str(threads), why))

    def with_cache(self, cache_bytes: int, why: str) -> LoaderPlan:
        """Return the plan with a cache in memory, or with another reason for no cache."""
        cache = "memory" if cache_bytes else OFF
        return replace(
            self,
            cache=cache,
            cache_bytes=cache_bytes,
            memory=replace(self.memory, cache=cache_bytes),
            decisions=self._decide("cache", cache, why),
        )

    def _decide(self, setting: str, choice: str, why: str) -> tuple[PlanDecision, ...]:
        decision = PlanDecision(setting, choice, why)
        return tuple(decision if old.setting == setting else old for old in self.decisions)

    def __str__(self) -> str:
        available = f"{format_size(self.resources.memory)} available ({self.resources.limited_by})"
        return "\n".join([f"memory: at most {format_size(self.peak)}, {available}", *map(str, self.decisions)])


class BatchShape(NamedTuple):
    """Properties of the batches that determine memory."""

    canvas: tuple[int, int]  # width and height
    batch: int
    whole_images: bool = True  # every sample is one whole image, so that headers tell the memory of a sample
    reuses_windows: bool = False  # decoded windows are cached until they are requested

    def window_cache_bytes(self, budget: int) -> int:
        """Return the part of a budget that caches decoded windows."""
        return budget // 4 if self.reuses_windows else 0


@dataclass(frozen=True, eq=False)
class DecodeLimits:
    """Images that fit a byte budget, and how the budget is divided."""

    samples: NDArray[np.int64]  # images that can be decoded within the budget
    skipped: dict[int, str]  # other images, with the reason
    threads: int  # threads that the budget keeps busy
    budget: int  # bytes that may be decoding at once, without the memory that threads keep
    image_budget: int  # bytes that a single image may need, whatever the number of threads
    largest_image: int  # bytes that the largest usable image needs, including the memory that its thread keeps


def decode_limits(index: ImageIndex, shape: BatchShape, budget: int, max_threads: int) -> DecodeLimits:
    """Divide a byte budget, from the headers of all images and before anything is allocated."""
    budget -= shape.window_cache_bytes(budget)
    usable, costs = index.usable, _decode_costs(index, shape.canvas)
    typical = int(np.percentile(costs, _TYPICAL_PERCENTILE)) if len(costs) else 1
    # More threads than fit the budget would only keep memory.
    threads = max(min(max_threads, budget // (typical + _THREAD_BYTES)), 1)
    image_budget = max(budget - _THREAD_BYTES, budget // 2)
    too_large = costs > image_budget
    return DecodeLimits(
        samples=usable[~too_large],
        skipped={
            number: over_budget(cost, image_budget)
            for number, cost in zip(usable[too_large].tolist(), costs[too_large].tolist(), strict=True)
        },
        threads=threads,
        budget=max(budget - threads * _THREAD_BYTES, budget // 2),
        image_budget=image_budget,
        largest_image=int(costs[~too_large].max(initial=0)) + _THREAD_BYTES,
    )


def _decode_costs(index: ImageIndex, canvas: tuple[int, int]) -> NDArray[np.int64]:
    """Return the bytes that decoding needs, for each usable image."""
    records = index.records[index.usable]
    # Millions of images have few different headers. The largest file represents all files with the same header.
    kinds, kind_of = np.unique(records[_COST_FIELDS], return_inverse=True)
    largest = np.zeros(len(kinds), np.int64)
    np.maximum.at(largest, kind_of, records["file_size"])
    costs = np.empty(len(kinds), np.int64)
    for kind in range(len(kinds)):
        matches = (kind_of == kind) & (records["file_size"] == largest[kind])
        header = to_header(records[int(np.flatnonzero(matches)[0])])
        size = fit_size(header.display_size, canvas)
        costs[kind] = decode_cost(header, size) + size[0] * size[1] * 3
    return np.asarray(costs[kind_of], np.int64)


def plan_loader(
    index: ImageIndex,
    size: int | tuple[int, int],
    batch: int,
    options: LoaderOptions | None = None,
    resources: HostResources | None = None,
) -> LoaderPlan:
    """Choose the settings for loading whole images on this machine.

    Args:
        index: the images.
        size: side of the square canvas, or (height, width).
        batch: samples per batch.
        options: requested settings.
        resources: what may be used; what is available on this machine by default.

    Raises:
        CannotFit: the smallest possible loader needs more memory than is available.
        UsageError: the size or the batch is below 1.
    """
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width, batch) < 1:
        raise UsageError(f"a batch of {batch} images of {width}×{height} has no pixels", "use 1 or more of each")
    return _make_plan(index, BatchShape((width, height), batch), options or LoaderOptions(), resources)[0]


def resolve_plan(
    index: ImageIndex, shape: BatchShape, options: LoaderOptions | LoaderPlan
) -> tuple[LoaderPlan, DecodeLimits]:
    """Make the plan of a loader, or adapt the memory of a finished plan to its batches."""
    if isinstance(options, LoaderOptions):
        return _make_plan(index, shape, options)
    plan = options
    requested = replace(plan.options, budget=plan.budget, prefetch=plan.prefetch, pin_memory=plan.pin_memory)
    unlimited = replace(plan.resources, memory=sys.maxsize)  # the plan was checked when it was made
    adapted, limits = _make_plan(index, shape, requested, unlimited)
    cache_bytes = plan.cache_bytes if plan.cache == "memory" else 0
    return replace(plan, memory=replace(adapted.memory, cache=cache_bytes)), limits


def merge_options(
    options: LoaderOptions | LoaderPlan | None, **settings: int | str | None
) -> LoaderOptions | LoaderPlan:
    """Combine options with settings that were passed to the loader directly."""
    given = {name: value for name, value in settings.items() if value is not None}
    if isinstance(options, LoaderPlan):
        if given:
            raise UsageError(f"the plan already sets {' and '.join(given)}", "pass the plan alone, or LoaderOptions")
        return options
    return replace(options or LoaderOptions(), **given)  # type: ignore[arg-type]


def open_cache(plan: LoaderPlan) -> Cache | None:
    """Open the cache that a loader starts with."""
    if isinstance(plan.options.cache, Cache):
        return plan.options.cache
    return Cache(None, plan.cache_bytes) if plan.cache == "memory" else None


def full_cache_bytes(index: ImageIndex, canvas: tuple[int, int]) -> int:
    """Return the size of a cache of all usable images, fitted into a canvas."""
    records = index.records[index.usable][["width", "height", "orientation"]]
    kinds, counts = np.unique(records, return_counts=True)
    total = 0
    for kind, count in zip(kinds, counts.tolist(), strict=True):
        display_size = stored_size((int(kind["width"]), int(kind["height"])), int(kind["orientation"]))
        total += Cache.entry_bytes(*fit_size(display_size, canvas)) * count
    return total


def _make_plan(
    index: ImageIndex, shape: BatchShape, options: LoaderOptions, resources: HostResources | None = None
) -> tuple[LoaderPlan, DecodeLimits]:
    resources = resources or read_resources()
    max_threads, why_threads = _max_threads(options, resources)
    requested = LoaderWorkload(
        batch=shape.batch,
        sample_bytes=shape.canvas[0] * shape.canvas[1] * 3,
        decode_bytes=0,
        workers=options.workers,
        prefetch=options.prefetch or max(_MIN_PREFETCH, -(-(options.workers or max_threads) // shape.batch)),
        start_method=options.start_method,
        pin_memory=resources.gpu if options.pin_memory is None else options.pin_memory,
        budget=default_budget(resources) if options.budget is None else parse_size(options.budget),
        index_bytes=index.nbytes,
    )
    workload, decisions = _fit(requested, options, resources)
    budget = workload.budget or MIN_BUDGET_BYTES
    limits = decode_limits(index, shape, budget, max_threads)
    if shape.whole_images and not workload.workers:  # otherwise the budget is the only bound
        workload = replace(workload, threads=limits.threads, decode_bytes=limits.largest_image)
    threads = min(options.threads or _initial_threads(options, resources), limits.threads)
    if limits.threads < max_threads:
        why_threads = f"{format_size(budget)} fit no more images at once"
    cache, cache_bytes, why_cache = _initial_cache(index, shape, options)
    plan = LoaderPlan(
        budget=budget,
        threads=threads,
        max_threads=limits.threads if options.threads is None else threads,
        workers=workload.workers,
        start_method=workload.start_method,
        prefetch=workload.prefetch,
        pin_memory=workload.pin_memory,
        cache=cache,
        cache_bytes=cache_bytes,
        memory=predict_loader_memory(replace(workload, cache_bytes=cache_bytes if cache == "memory" else 0)),
        resources=resources,
        decisions=(
            *decisions,
            PlanDecision("threads", str(threads), why_threads),
            PlanDecision("workers", str(workload.workers), _why_workers(workload, resources)),
            PlanDecision("cache", cache, why_cache),
        ),
        options=options,
    )
    return plan, limits


def _fit(
    workload: LoaderWorkload, options: LoaderOptions, resources: HostResources
) -> tuple[LoaderWorkload, tuple[PlanDecision, ...]]:
    """Reduce a workload until it fits, cheapest first: prefetch, pinned memory, then the decoding budget."""
    available = f"{format_size(resources.memory)} available ({resources.limited_by})"
    short, requested = f"only {available}", "as requested"
    why_prefetch = requested if options.prefetch is not None else "keeps all threads busy"
    why_budget = requested if options.budget is not None else f"a quarter of {available}, between 64 MiB and 1 GiB"
    why_pin = "batches go to a GPU" if resources.gpu else "no GPU"
    why_pin = requested if options.pin_memory is not None else why_pin
    while _excess_bytes(workload, resources) > 0 and options.prefetch is None and workload.prefetch > 1:
        workload, why_prefetch = replace(workload, prefetch=workload.prefetch // 2), short
    if _excess_bytes(workload, resources) > 0 and options.pin_memory is None and workload.pin_memory:
        workload, why_pin = replace(workload, pin_memory=False), short
    excess, budget = _excess_bytes(workload, resources), workload.budget or 0
    if excess > 0 and options.budget is None and budget > MIN_BUDGET_BYTES:
        workload, why_budget = replace(workload, budget=max(budget - excess, MIN_BUDGET_BYTES)), short
    if _excess_bytes(workload, resources) > 0:
        needed = predict_loader_memory(workload)
        raise CannotFit(
            f"loading batches of {workload.batch} needs up to {format_size(needed.total)} of host memory "
            f"({format_size(needed.batches)} for prefetched batches), {short}",
            "use smaller batches or images, or a smaller budget",
        )
    decisions = (
        PlanDecision("budget", format_size(workload.budget or 0), why_budget),
        PlanDecision("prefetch", str(workload.prefetch), why_prefetch),
        PlanDecision("pin_memory", "yes" if workload.pin_memory else "no", why_pin),
    )
    return workload, decisions


def _excess_bytes(workload: LoaderWorkload, resources: HostResources) -> int:
    """Return the bytes by which a workload exceeds the memory; the index is already allocated."""
    return predict_loader_memory(workload).total - workload.index_bytes - resources.memory


def _initial_threads(options: LoaderOptions, resources: HostResources) -> int:
    """Return the threads to start with; workers use 5 of 8 cores, because training slows down if all are busy."""
    return -(-resources.cores * 5 // 8) if options.workers else min(resources.cores, _DEFAULT_THREADS)


def _max_threads(options: LoaderOptions, resources: HostResources) -> tuple[int, str]:
    if options.threads is not None:
        return min(options.threads, options.workers or options.threads), "as requested"
    if options.workers:
        return options.workers, "one per active worker process; tuned while loading"
    return min(resources.cores, _MAX_THREADS), f"{resources.cores} usable cores; tuned while loading"


def _why_workers(workload: LoaderWorkload, resources: HostResources) -> str:
    if not workload.workers:
        return "decoders release the GIL, so threads suffice"
    shared = predict_loader_memory(workload).shared
    if shared <= resources.shm:
        return f"as requested; {format_size(shared)} of batches are in /dev/shm"
    return f"as requested; batches are on disk: {format_size(shared)} exceed /dev/shm ({format_size(resources.shm)})"


def _initial_cache(index: ImageIndex, shape: BatchShape, options: LoaderOptions) -> tuple[str, int, str]:
    if isinstance(options.cache, Cache):
        return ("memory" if options.cache.in_memory else "disk"), options.cache.cap, "as requested"
    if options.cache == OFF:
        return OFF, 0, "as requested"
    size = format_size(full_cache_bytes(index, shape.canvas))
    return OFF, 0, f"decided after the first batches; a full cache needs {size}"
