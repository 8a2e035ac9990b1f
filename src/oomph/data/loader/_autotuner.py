"""`Autotuner`: adapts threads and cache to measured waiting times while batches are made, and measures memory."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...errors import OomphError
from .._cache import Cache
from .._resources import MemoryMeter, read_resources
from ._cached_decoder import CachedDecoder, decide_cache
from ._plan import OFF, LoaderPlan
from ._timings import Timings, WaitMeter
from ._worker_pool import WorkerThreads

MIN_WAIT_FRACTION = 0.1  # of the consumer's time, above which loading is a bottleneck
_MAX_IDLE_WAIT_FRACTION = 0.02  # below which threads can be removed
_SPARE_THREADS = 1.25  # factor over the mean demand, because images differ
_MIN_SPEEDUP = 0.05  # that added threads must bring


class ThreadTuner:
    """Chooses the number of threads, from 1 to a maximum.

    Threads are added while the consumer waits, and removed while it doesn't. Added threads that don't help are removed
    again and not tried a second time.
    """

    def __init__(self, threads: int, max_threads: int) -> None:
        self.threads, self.max_threads = threads, max(max_threads, threads)
        self._min_threads = 1
        self._trial: tuple[int, float] | None = None  # threads and seconds per batch before threads were added

    @property
    def is_exhausted(self) -> bool:
        """True if there are no more threads to try."""
        return self._trial is None and self.threads >= self.max_threads

    def end_pass(self) -> None:
        """Forget the minimum of the pass: the next one may need less, for instance with a filled cache."""
        self._min_threads = 1

    def update(self, timings: Timings) -> int:
        """Return the number of threads for the next batches."""
        if self._trial is not None:
            fewer, seconds_before = self._trial
            self._trial = None
            if timings.seconds_per_batch > seconds_before * (1 - _MIN_SPEEDUP):
                self.threads = self.max_threads = fewer
                return self.threads
            self._min_threads = fewer + 1
        if timings.wait_fraction > MIN_WAIT_FRACTION and self.threads < self.max_threads:
            self._trial = (self.threads, timings.seconds_per_batch)
            self.threads = min(max(self._needed(timings), self.threads + 1), self.max_threads)
        elif timings.wait_fraction < _MAX_IDLE_WAIT_FRACTION:
            self.threads = max(min(self.threads, self._needed(timings)), self._min_threads)
        return self.threads

    def _needed(self, timings: Timings) -> int:
        """Return the threads that make samples as fast as the consumer uses them."""
        busy = max(timings.work_seconds - timings.budget_wait_seconds, 0.0)
        needed = math.ceil(busy / max(timings.consumer_seconds, 1e-9) * _SPARE_THREADS)
        return max(min(needed, self.max_threads), 1)


class Autotuner:
    """Adapts the plan of a loader to its batches.

    Args:
        plan: the plan to start with.
        decoder: decodes whole images; a cache is added to it if it pays off.
        full_cache_bytes: size of a cache of all images.
        expects_repeats: the same images will be loaded again. After one pass that is assumed in any case.
    """

    def __init__(
        self, plan: LoaderPlan, decoder: CachedDecoder, full_cache_bytes: int, *, expects_repeats: bool
    ) -> None:
        self.plan, self.decoder, self.full_cache_bytes = plan, decoder, full_cache_bytes
        self._is_forked = plan.start_method == "fork"
        self.meter, self.memory = WaitMeter(), MemoryMeter(forked=self._is_forked)
        self._expects_repeats = expects_repeats
        self._tuner = ThreadTuner(plan.threads, plan.max_threads)
        self._may_cache = plan.options.cache is None and plan.cache == OFF and not plan.workers

    def end_pass(self, pids: Iterable[int]) -> None:
        """Record that a pass reached its end."""
        self._expects_repeats = True
        self._tuner.end_pass()
        if self._is_forked:
            self.memory.sample(pids)

    def add_batch(self, seconds: float, threads: WorkerThreads, pids: Iterable[int]) -> None:
        """Record that the consumer used a batch for some seconds, and adapt threads and cache."""
        window = self.meter.add_batch(seconds)
        if window is None:
            return
        self.memory.sample(() if self._is_forked else pids)  # too slow for forked workers
        before = self._tuner.threads
        after = self._tuner.update(window)
        if after != before:
            threads.resize(after)
            change = "added" if after > before else "removed"
            waiting = f"{window.wait_fraction:.0%} of the consumer's time was spent waiting"
            self.plan = self.plan.with_threads(after, f"threads {change}: {waiting}")
            self.meter.restart()
        elif self._may_cache and self._expects_repeats and self._tuner.is_exhausted:
            self._consider_cache(is_waiting=window.wait_fraction > MIN_WAIT_FRACTION)

    def _consider_cache(self, *, is_waiting: bool) -> None:
        decision = decide_cache(self.decoder.stats, self.full_cache_bytes, read_resources(), is_waiting=is_waiting)
        self._may_cache = decision.undecided
        self.plan = self.plan.with_cache(0, decision.why)
        if decision.bytes:
            try:
                self.decoder.cache = Cache(None, decision.bytes)
            except OomphError as error:  # /dev/shm filled up in the meantime
                self.plan = self.plan.with_cache(0, error.why)
                return
            self.plan = self.plan.with_cache(self.decoder.cache.cap, decision.why)
            self.meter.restart()
