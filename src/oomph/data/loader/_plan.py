"""The host plan: threads or workers, batches ahead, pinned memory and the cache, under one budget of bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...errors import CannotFit, UsageError
from ...units import MIB, format_size, parse_size
from .._cache import Cache
from .._host import LoaderMemory, LoaderWorkload, default_budget, predict_loader_memory
from .._index import ImageIndex
from .._room import HostResources, read_resources
from ..decoding import fit_size, stored_size
from ._limit import Limits, limits
from ._process import STARTS

OFF = "off"
_USUAL_THREADS, _MOST_THREADS = 8, 32
_AHEAD = 2
_LEAST = 64 * MIB


class Decision(NamedTuple):
    """One choice of a plan: what it is about, what was chosen, and why, in a sentence."""

    what: str
    choice: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.choice}, {self.why}"


@dataclass(frozen=True)
class LoaderOptions:
    """What is asked of the host; whatever is left out is chosen.

    Attributes:
        budget: bytes (or "256MB") that decoding may hold at once.
        threads: decoding threads, exactly; without, they are chosen and tuned while batches are made.
        workers: worker processes in their place, at most, for recipes that keep Python busy; a thread drives each.
        start: how those are started: "spawn", "forkserver" or "fork".
        prefetch: batches that are made ahead.
        pin: copy batches to pinned memory on their way to a GPU.
        cache: keeps decoded copies for the next epoch; "off" for none; without, one in memory when that pays.
    """

    budget: int | str | None = None
    threads: int | None = None
    workers: int = 0
    start: str = "spawn"
    prefetch: int | None = None
    pin: bool | None = None
    cache: Cache | str | None = None

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise UsageError(f"start={self.start!r} is no way to start a process", f"say {', '.join(STARTS)}")
        low = min(1 if self.threads is None else self.threads, 1 if self.prefetch is None else self.prefetch)
        if low < 1 or self.workers < 0:
            raise UsageError(
                "threads and prefetch must be 1 or more, workers 0 or more", "leave them out to have them chosen"
            )
        if isinstance(self.cache, str) and self.cache != OFF:
            raise UsageError(f"cache={self.cache!r} is not a cache", 'give a Cache(folder, "20GB"), or "off"')


@dataclass(frozen=True)
class LoaderPlan:
    """How data are loaded on this machine, and what that takes at most; sizes in bytes.

    Attributes:
        budget: what decoding may hold at once.
        threads: decoding threads at the start.
        most: threads that tuning may go up to; the same number when it was asked for.
        workers: worker processes; 0 for threads.
        start: how those are started.
        prefetch: batches made ahead; the consumer's and one in between are prepared besides.
        pin: whether batches go to a GPU through pinned memory.
        cache: where decoded copies are kept: "off", "memory" or "disk".
        copies: bytes that they may take there.
        memory: the predicted peak, part by part.
        room: what the machine left when the plan was made.
        decisions: each choice with its reason.
        options: what was asked for.
    """

    budget: int
    threads: int
    most: int
    workers: int
    start: str
    prefetch: int
    pin: bool
    cache: str
    copies: int
    memory: LoaderMemory
    room: HostResources
    decisions: tuple[Decision, ...]
    options: LoaderOptions

    @property
    def peak(self) -> int:
        """Host memory that loading adds at most."""
        return self.memory.total

    def why(self, what: str) -> str:
        """The reason of one choice."""
        return next(decision.why for decision in self.decisions if decision.what == what)

    def with_threads(self, threads: int, why: str) -> LoaderPlan:
        """The plan with another number of threads."""
        return replace(self, threads=threads, decisions=self._anew(Decision("threads", str(threads), why)))

    def with_cache(self, copies: int, why: str) -> LoaderPlan:
        """The plan with copies kept in memory, or with another reason why none are."""
        where = "memory" if copies else OFF
        memory = replace(self.memory, copies=copies)
        return replace(
            self, cache=where, copies=copies, memory=memory, decisions=self._anew(Decision("cache", where, why))
        )

    def _anew(self, decision: Decision) -> tuple[Decision, ...]:
        return tuple(decision if old.what == decision.what else old for old in self.decisions)

    def __str__(self) -> str:
        first = f"at most {format_size(self.peak)} of the {format_size(self.room.memory)} that {self.room.bound} leaves"
        return "\n".join([first, *map(str, self.decisions)])


class Frame(NamedTuple):
    """What batches are like.

    Attributes:
        canvas: width and height.
        batch: samples.
        plain: a sample is one whole image, so that headers say what it takes; a recipe's may be anything.
        reuses: decoded windows wait for their use.
    """

    canvas: tuple[int, int]
    batch: int
    plain: bool = True
    reuses: bool = False

    @property
    def sample(self) -> int:
        """Bytes of one sample."""
        return self.canvas[0] * self.canvas[1] * 3


def plan_loader(
    index: ImageIndex,
    size: int | tuple[int, int],
    batch: int,
    options: LoaderOptions | None = None,
    room: HostResources | None = None,
) -> LoaderPlan:
    """Choose how images are loaded on this machine.

    Args:
        index: the images.
        size: side of the square canvas, or (height, width).
        batch: samples of a batch.
        options: what is asked for.
        room: what may be used; what this machine leaves, without.

    Raises:
        CannotFit: the least that loading takes is more than is left.
        UsageError: a size or a batch of nothing.
    """
    tall, wide = (size, size) if isinstance(size, int) else size
    if min(tall, wide, batch) < 1:
        raise UsageError(f"a batch of {batch} images of {wide}×{tall} has no pixels", "ask for 1 or more of each")
    plan, _ = plan_with_limits(index, Frame((wide, tall), batch), options or LoaderOptions(), room)
    return plan


def plan_with_limits(
    index: ImageIndex, frame: Frame, options: LoaderOptions, room: HostResources | None = None
) -> tuple[LoaderPlan, Limits]:
    """The plan, and which images can be decoded within its budget."""
    room = room or read_resources()
    most, why_threads = _threads(options, room)
    load, said = _fit(_load(index, frame, options, (room, most)), options, room)
    budget = load.budget or _LEAST
    shares = share_out(index, frame, budget, most)
    threads = min(options.threads or _usual(options, room), shares.threads)
    if shares.threads < most:
        why_threads = f"as many images as {format_size(budget)} hold at once"
    if frame.plain and not load.workers:
        load = replace(load, threads=shares.threads, decode=shares.largest)
    cache, copies, why_cache = _cache(index, frame, options)
    decisions = (
        *said,
        Decision("threads", str(threads), why_threads),
        Decision("workers", str(load.workers), _why_workers(load, room)),
        Decision("cache", cache, why_cache),
    )
    plan = LoaderPlan(
        budget=budget,
        threads=threads,
        most=shares.threads if options.threads is None else threads,
        workers=load.workers,
        start=load.start,
        prefetch=load.prefetch,
        pin=load.pin,
        cache=cache,
        copies=copies,
        memory=predict_loader_memory(replace(load, copies=copies if cache == "memory" else 0)),
        room=room,
        decisions=decisions,
        options=options,
    )
    return plan, shares


def asked(host: LoaderOptions | LoaderPlan | None, **words: int | str | None) -> LoaderOptions | LoaderPlan:
    """What a loader is told of the host, put together."""
    own = {name: value for name, value in words.items() if value is not None}
    if isinstance(host, LoaderPlan):
        if own:
            raise UsageError(
                f"the host plan has {' and '.join(own)} already", "give it alone, or LoaderOptions instead"
            )
        return host
    return replace(host or LoaderOptions(), **own)  # type: ignore[arg-type]


def settle(index: ImageIndex, frame: Frame, host: LoaderOptions | LoaderPlan) -> tuple[LoaderPlan, Limits]:
    """The plan of a loader: made here, or made before and taken for these batches."""
    if isinstance(host, LoaderOptions):
        return plan_with_limits(index, frame, host)
    load = LoaderWorkload(
        batch=frame.batch,
        sample=frame.sample,
        decode=0,
        workers=host.workers,
        prefetch=host.prefetch,
        start=host.start,
        pin=host.pin,
        budget=host.budget,
        index=index.nbytes,
        copies=host.copies if host.cache == "memory" else 0,
    )
    shares = share_out(index, frame, host.budget, host.most)
    if frame.plain and not load.workers:
        load = replace(load, threads=shares.threads, decode=shares.largest)
    return replace(host, memory=predict_loader_memory(load)), shares


def cache_of(plan: LoaderPlan) -> Cache | None:
    """The cache that a plan begins with."""
    if isinstance(plan.options.cache, Cache):
        return plan.options.cache
    return Cache(None, plan.copies) if plan.cache == "memory" else None


def share_out(index: ImageIndex, frame: Frame, budget: int, threads: int) -> Limits:
    """Share out a budget; a quarter of it keeps windows for a recipe that uses them again."""
    return limits(index, frame.canvas, budget - pooled(budget, reuses=frame.reuses), threads)


def pooled(budget: int, *, reuses: bool) -> int:
    """Bytes that keep decoded windows until they are used."""
    return budget // 4 if reuses else 0


def _load(index: ImageIndex, frame: Frame, options: LoaderOptions, hands: tuple[HostResources, int]) -> LoaderWorkload:
    room, threads = hands
    return LoaderWorkload(
        batch=frame.batch,
        sample=frame.sample,
        decode=0,
        workers=options.workers,
        prefetch=options.prefetch or max(_AHEAD, -(-(options.workers or threads) // frame.batch)),
        start=options.start,
        pin=room.gpu if options.pin is None else options.pin,
        budget=default_budget(room) if options.budget is None else parse_size(options.budget),
        index=index.nbytes,
    )


def _fit(
    load: LoaderWorkload, options: LoaderOptions, room: HostResources
) -> tuple[LoaderWorkload, tuple[Decision, ...]]:
    """Give up what costs least first, until it fits: batches ahead, pinned memory, then bytes for decoding."""
    ahead = "as asked" if options.prefetch else "so that threads always have samples to make"
    pin = "as asked" if options.pin is not None else "batches go to a GPU" if room.gpu else "there is no GPU"
    budget = (
        "as asked"
        if options.budget is not None
        else f"a quarter of the {format_size(room.memory)} that {room.bound} leaves, between 64 MiB and 1 GiB"
    )
    short = f"{room.bound} leaves no more than {format_size(room.memory)}"
    while _over(load, room) > 0 and options.prefetch is None and load.prefetch > 1:
        load, ahead = replace(load, prefetch=load.prefetch // 2), short
    if _over(load, room) > 0 and options.pin is None and load.pin:
        load, pin = replace(load, pin=False), short
    over, had = _over(load, room), load.budget or 0
    if over > 0 and options.budget is None and had > _LEAST:
        load, budget = replace(load, budget=max(had - over, _LEAST)), short
    if _over(load, room) > 0:
        needed = predict_loader_memory(load)
        raise CannotFit(
            f"loading batches of {load.batch} takes up to {format_size(needed.total)} of host memory, "
            f"{format_size(needed.batches)} of it for batches made ahead, and {short}",
            "load smaller batches or images, or give it a smaller budget",
        )
    decisions = (
        Decision("budget", format_size(load.budget or 0), budget),
        Decision("prefetch", str(load.prefetch), ahead),
        Decision("pin", "yes" if load.pin else "no", pin),
    )
    return load, decisions


def _over(load: LoaderWorkload, room: HostResources) -> int:
    """Bytes that are missing; the index is there already."""
    return predict_loader_memory(load).total - load.index - room.memory


def _usual(options: LoaderOptions, room: HostResources) -> int:
    """Threads to begin with: workers take cores from whoever trains, who needs two and is slower long before."""
    return -(-room.cores * 5 // 8) if options.workers else min(room.cores, _USUAL_THREADS)


def _threads(options: LoaderOptions, room: HostResources) -> tuple[int, str]:
    """How many there may be."""
    if options.threads is not None:
        return min(options.threads, options.workers or options.threads), "as asked"
    if options.workers:
        return options.workers, "each drives a worker process; tuned while batches are made"
    return min(room.cores, _MOST_THREADS), f"{room.cores} cores may be used; tuned while batches are made"


def _why_workers(load: LoaderWorkload, room: HostResources) -> str:
    if not load.workers:
        return "decoders let go of Python's lock, and threads take no memory of their own"
    shared = predict_loader_memory(load).shared
    if shared <= room.shm:
        return f"as asked; {format_size(shared)} of batches lie in /dev/shm"
    return f"as asked; batches lie on the disk, because /dev/shm has {format_size(room.shm)} of {format_size(shared)}"


def _cache(index: ImageIndex, frame: Frame, options: LoaderOptions) -> tuple[str, int, str]:
    if isinstance(options.cache, Cache):
        return ("memory" if options.cache.in_memory else "disk"), options.cache.cap, "as asked"
    if options.cache == OFF:
        return OFF, 0, "as asked"
    size = format_size(copies_of(index, frame.canvas))
    return OFF, 0, f"until the first batches show that it pays; copies of all images would take {size}"


def copies_of(index: ImageIndex, canvas: tuple[int, int]) -> int:
    """Bytes of decoded copies of all usable images, fitted into a canvas."""
    rows = index.records[index.usable][["width", "height", "orientation"]]
    kinds, counts = np.unique(rows, return_counts=True)
    total = 0
    for kind, count in zip(kinds, counts.tolist(), strict=True):
        shown = stored_size((int(kind["width"]), int(kind["height"])), int(kind["orientation"]))
        total += Cache.size_of(*fit_size(shown, canvas)) * count
    return total
