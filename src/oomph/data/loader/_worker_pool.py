"""The batches of a pass: a queue of rows to make, and the threads that make them.

A thread makes samples itself (`LocalWorkers`) or lets a worker process make them (`ProcessWorkers` in `_process.py`).
The samples and their order are the same in both cases, whatever the number of threads.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import OomphError
from .._sampler import BatchSpec, samples_from
from ._buffers import BatchBuffers, Bytes
from ._sample_maker import BadSample, ByteSemaphore, PoolClosed, SampleMaker
from ._timings import Timings

# Makes samples on the rows of a canvas, and returns the target of each, or a BadSample.
SampleFn = Callable[[list[int], Bytes], list[Any]]
_CHUNKS_PER_THREAD = 1.5
_MAX_REPLACEMENTS = 1000  # samples tried for one row before the pass fails


class WorkerPool(Protocol):
    """Makes samples, in threads of this process or in worker processes."""

    @property
    def max_chunk(self) -> int:
        """Samples that a thread may request at once."""

    def sample_fns(self, epoch: int, semaphore: ByteSemaphore) -> list[SampleFn]:
        """Return the function that each thread of a pass calls."""

    def pids(self) -> list[int]:
        """Return the running worker processes."""

    def close(self) -> None:
        """Stop all worker processes."""


class LocalWorkers:
    """A pool without processes: threads make samples, because the decoders release the GIL."""

    max_chunk = 1

    def __init__(self, count: int, maker: SampleMaker) -> None:
        self._count, self._maker = count, maker

    def sample_fns(self, epoch: int, semaphore: ByteSemaphore) -> list[SampleFn]:
        def make(samples: list[int], canvas: Bytes) -> list[Any]:
            return self._maker.make_samples(samples, epoch, canvas, semaphore.acquire)

        return [make] * self._count

    def pids(self) -> list[int]:
        return []

    def close(self) -> None:
        """Do nothing: threads end with their pass."""


@dataclass(frozen=True)
class EpochSpec:
    """The settings of a pass."""

    batches: Sequence[BatchSpec]
    prefetch: int  # batches in progress at once
    buffers: BatchBuffers
    semaphore: ByteSemaphore  # closed with the pass
    skipped: dict[int, str]  # unusable images with reasons, shared by all passes
    replace: bool  # replace a bad sample by the next one of the epoch, instead of dropping it
    timings: Timings  # work_seconds are added


@dataclass(eq=False)
class PendingBatch:
    """A batch in progress."""

    number: int  # position in the epoch
    canvas: Bytes
    indices: NDArray[np.int64]  # samples, after replacement of bad ones
    targets: list[Any]
    kept: NDArray[np.bool_]  # rows that are not dropped
    missing: int  # rows that are not finished
    error: tuple[int, BaseException] | None = None  # first row with an error


def chunk_size(batch: int, prefetch: int, threads: int, max_chunk: int) -> int:
    """Return the rows per request: equal chunks, small enough that the batches in progress keep all threads busy."""
    largest = max(min(int(batch * prefetch / (max(threads, 1) * _CHUNKS_PER_THREAD)), max_chunk, batch), 1)
    return math.ceil(batch / math.ceil(batch / largest))


class WorkQueue:
    """Assigns the rows of a pass to threads in order, and collects finished batches."""

    def __init__(self, spec: EpochSpec, start: int) -> None:
        self.spec = spec
        self.next_batch = start  # the batch that the consumer gets next
        self.closed = False
        self._open_batch, self._open_row = start, 0  # the row that is assigned next
        self._pending: dict[int, PendingBatch] = {}
        self._changed = threading.Condition()
        self._thread_count, self._running = 0, set[int]()

    def set_thread_count(self, count: int) -> list[int]:
        """Set the number of threads and return the numbers of those to start; surplus threads end by themselves."""
        with self._changed:
            self._thread_count = count
            missing = [number for number in range(count) if number not in self._running]
            self._running.update(missing)
            self._changed.notify_all()
            return missing

    def next_rows(self, thread: int = 0, max_chunk: int = 1) -> tuple[PendingBatch, range] | None:
        """Return the next rows to make, waiting for a free place for their batch; None if the thread should end."""
        with self._changed:
            task = self._next_rows(thread, max_chunk)
            if task is None:
                self._running.discard(thread)
            return task

    def _next_rows(self, thread: int, max_chunk: int) -> tuple[PendingBatch, range] | None:
        spec = self.spec
        while thread < self._thread_count and not self.closed and self._open_batch < len(spec.batches):
            batch = self._pending.get(self._open_batch)
            if batch is None and self._open_batch < self.next_batch + spec.prefetch:
                batch = self._pending[self._open_batch] = self._open()
            if batch is None:
                self._changed.wait()
                continue
            rows = len(batch.indices)
            chunk = chunk_size(rows, spec.prefetch, self._thread_count, max_chunk)
            assigned = range(self._open_row, min(self._open_row + chunk, rows))
            self._open_row = assigned.stop
            if self._open_row == rows:
                self._open_batch, self._open_row = self._open_batch + 1, 0
            return batch, assigned
        return None

    def _open(self) -> PendingBatch:
        indices, width, height = self.spec.batches[self._open_batch]
        count = len(indices)
        canvas = self.spec.buffers.acquire((count, height, width, 3))
        kept = np.ones(count, np.bool_)
        return PendingBatch(self._open_batch, canvas, indices.copy(), [None] * count, kept, count)

    def make_rows(self, batch: PendingBatch, rows: range, make: SampleFn) -> None:
        """Make rows of a batch, and replace or drop bad samples."""
        samples = [int(batch.indices[row]) for row in rows]
        targets = make(samples, batch.canvas[rows.start : rows.stop])
        for row, target in zip(rows, targets, strict=True):
            batch.targets[row] = self._replace(batch, row, target, make) if isinstance(target, BadSample) else target

    def _replace(self, batch: PendingBatch, row: int, bad: BadSample, make: SampleFn) -> Any:
        self.spec.skipped[bad.image] = bad.reason
        if not self.spec.replace:
            batch.kept[row] = False
            return None
        for sample in islice(samples_from(self.spec.batches, batch.number, row), 1, _MAX_REPLACEMENTS):
            (target,) = make([sample], batch.canvas[row : row + 1])
            if not isinstance(target, BadSample):
                batch.indices[row] = sample
                return target
            self.spec.skipped[target.image] = target.reason
        last = next(reversed(self.spec.skipped.values()))
        raise OomphError(f"every sample was skipped; last reason: {last}", "check the files in loader.skipped()")

    def finish(self, batch: PendingBatch, rows: range, error: BaseException | None, seconds: float = 0.0) -> None:
        """Record that rows are finished."""
        with self._changed:
            self.spec.timings.work_seconds += seconds
            if error is not None and (batch.error is None or rows.start < batch.error[0]):
                batch.error = (rows.start, error)
            batch.missing -= len(rows)
            if not batch.missing:
                self._changed.notify_all()

    def take(self) -> PendingBatch | None:
        """Wait for the next batch and return it; None at the end of the epoch or after `close`."""
        with self._changed:
            if self.next_batch >= len(self.spec.batches):
                return None
            self._changed.wait_for(lambda: self.closed or self._is_finished())
            if self.closed:
                return None
            batch = self._pending.pop(self.next_batch)
            self.next_batch += 1
            self._changed.notify_all()
            return batch

    def _is_finished(self) -> bool:
        batch = self._pending.get(self.next_batch)
        return batch is not None and not batch.missing

    def close(self) -> None:
        """Stop assigning rows, and wake all waiting threads."""
        with self._changed:
            self.closed = True
            self._pending.clear()
            self._changed.notify_all()
        self.spec.semaphore.close()


class WorkerThreads:
    """The threads of a pass. They stop when it is closed or garbage-collected, and at exit."""

    def __init__(self, queue: WorkQueue, pool: WorkerPool, epoch: int) -> None:
        self.queue = queue
        self._sample_fns, self._max_chunk = pool.sample_fns(epoch, queue.spec.semaphore), pool.max_chunk
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # the thread that prefetches may resize while the consumer closes
        weakref.finalize(self, _stop, queue, self._threads)

    def resize(self, count: int) -> None:
        """Start or end threads; the samples and their order stay the same."""
        with self._lock:
            if self.queue.closed:
                return
            self._threads[:] = [thread for thread in self._threads if thread.is_alive()]
            for number in self.queue.set_thread_count(min(count, len(self._sample_fns))):
                work = partial(_worker_loop, self.queue, number, self._sample_fns[number], self._max_chunk)
                thread = threading.Thread(target=work, name=f"oomph-data-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """Stop the threads and wait until they end, also if another thread is closing the pass."""
        self.queue.close()
        with self._lock:
            threads = list(self._threads)
        _stop(self.queue, threads)


def _worker_loop(queue: WorkQueue, number: int, make: SampleFn, max_chunk: int) -> None:
    while (task := queue.next_rows(number, max_chunk)) is not None:
        batch, rows = task
        error: BaseException | None = None
        started = time.perf_counter()
        try:
            queue.make_rows(batch, rows, make)
        except PoolClosed:
            return
        except BaseException as caught:  # noqa: BLE001  raised again where the batch is consumed
            error = caught
        queue.finish(batch, rows, error, time.perf_counter() - started)
        # The thread may now wait for long. Its variables must not keep the memory of the batch.
        task = batch = error = None  # type: ignore[assignment]


def _stop(queue: WorkQueue, threads: list[threading.Thread]) -> None:
    queue.close()
    if threading.current_thread() in threads:
        return  # garbage collection runs in one of the threads, which may hold a lock that another waits for
    for thread in list(threads):
        thread.join()
