"""`Loader`: batches of images, made ahead by threads or worker processes within a budget of bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import UsageError
from .._index import ImageIndex, Name, SkippedImage, to_index
from .._sampler import BatchSampler, BatchSpec, Shard, ShuffledSampler
from .._samples import LetterboxSamples, SampleBuilder
from ..decoding import PixelConversion
from ._autotuner import Autotuner
from ._buffers import Allocate, Batch, BatchBuffers, BufferPool, Bytes, SharedBuffers, allocate_pinned
from ._cached_decoder import CachedDecoder
from ._plan import (
    BatchShape,
    DecodeLimits,
    LoaderOptions,
    LoaderPlan,
    full_cache_bytes,
    merge_options,
    open_cache,
    resolve_plan,
)
from ._process import ProcessWorkers
from ._report import LoaderMeasurement, LoaderReport, describe_bottleneck
from ._sample_maker import ByteSemaphore, SampleMaker, WindowCache
from ._worker_pool import EpochSpec, LocalWorkers, PendingBatch, WorkerPool, WorkerThreads, WorkQueue

_ON_ERROR = ("replace", "drop")
_DEFAULT_CONVERSION, _WHOLE = PixelConversion(), Shard()
_MAX_HASHED_PATHS = 64  # per batch
Clock = Callable[[], float]


class Loader:
    """Batches of images, decoded by native threads within a budget of bytes.

        for images, indices, targets in Loader("photos/", size=640, batch=16, shuffle=True):
            images = images.to(device, non_blocking=True).float() / 255

    `images` is a uint8 tensor (samples, 3, height, width). A batch stays valid as long as it is referenced: its memory
    is reused only after that.

    Every pass over the loader is an epoch. The order depends only on the seed and the epoch, whatever the number of
    threads. `state_dict()` and `load_state_dict()` resume in the middle of an epoch.

    `plan` holds the settings and their reasons; it is tuned while batches are made. `report()` compares predicted with
    measured memory, and says what would help if the consumer waits for data.

    Args:
        source: an ImageIndex, a folder, or a list of files.
        size: side of the square canvas, or (height, width).
        batch: samples per batch.
        builder: makes samples from images; letterboxes whole images by default.
        collate: combines the list of the targets of a batch.
        shuffle: use a new order every epoch.
        seed: seed of the order and of the builder's random generators.
        shard: the part of the samples that this process loads.
        sampler: a BatchSampler, instead of `shuffle` and `shard`.
        on_error: "replace" a sample that can't be decoded by the next one of the epoch, or "drop" it from its batch.
        conversion: conversion of 16-bit and multi-band images to bytes.
        threads: number of decoding threads; chosen and tuned by default.
        workers: maximum number of worker processes, for builders that hold the GIL. The number of active ones is tuned
            unless `threads` sets it.
        budget: bytes (or "256MB") that decoding may use at once; chosen by default.
        options: further requested settings, or a finished plan.

    Raises:
        CannotFit: the smallest possible loader needs more memory than is available.
        UsageError: there is nothing to load, or an argument is invalid.
    """

    def __init__(  # noqa: PLR0913  named like the arguments of a DataLoader
        self,
        source: ImageIndex | Name | Iterable[Name],
        size: int | tuple[int, int] = 640,
        batch: int = 2,
        *,
        builder: SampleBuilder | None = None,
        collate: Callable[[list[Any]], Any] = tuple,
        shuffle: bool = False,
        seed: int = 0,
        shard: Shard = _WHOLE,
        sampler: BatchSampler | None = None,
        on_error: str = "replace",
        conversion: PixelConversion = _DEFAULT_CONVERSION,
        threads: int | None = None,
        workers: int | None = None,
        budget: int | str | None = None,
        options: LoaderOptions | LoaderPlan | None = None,
    ) -> None:
        if on_error not in _ON_ERROR:
            raise UsageError(f"on_error={on_error!r} is not supported", 'use "replace" or "drop"')
        self.index = self.dataset = to_index(source)  # `dataset` is the DataLoader's name for it
        self.batch_size, self._collate, self._replace = batch, collate, on_error == "replace"
        canvas = (size, size) if isinstance(size, int) else (size[1], size[0])
        shape = BatchShape(canvas, max(batch, 1), builder is None, getattr(builder, "reuses", False))
        if sampler is not None:
            largest = sampler.largest
            shape = shape._replace(canvas=(largest.width, largest.height), batch=len(largest.indices))
        merged = merge_options(options, threads=threads, workers=workers, budget=budget)
        plan, limits = resolve_plan(self.index, shape, merged)
        if sampler is None:
            _check_not_empty(self.index, limits)
            sampler = ShuffledSampler(limits.samples, batch, canvas, shuffle, seed, shard, even=self._replace)
        self._sampler: BatchSampler = sampler
        self._limits, self._skipped = limits, dict(limits.skipped) if builder is None else {}
        self._images_per_sample: int | None = 1 if builder is None else getattr(builder, "images", None)
        windows, decoder = WindowCache(shape.window_cache_bytes(plan.budget)), CachedDecoder(open_cache(plan))
        builder, cap = builder or LetterboxSamples(), limits.image_budget
        self._maker = SampleMaker(self.index, builder, conversion, seed, cap, windows, decoder, self._skipped)
        import torch  # noqa: F401, PLC0415  imported now, so that the autotuner doesn't count its memory

        cache_bytes = full_cache_bytes(self.index, shape.canvas)
        self._tuner = Autotuner(plan, decoder, cache_bytes, expects_repeats=shuffle)
        self._epoch = self._start = 0
        self._position = (0, 0)  # epoch, and batches of it that were consumed
        self._epoch_batches: tuple[int, Sequence[BatchSpec]] | None = None
        self._running: WorkerThreads | None = None
        self._semaphore = ByteSemaphore(limits.budget, self._tuner.meter.total)
        self._pool: WorkerPool | None = None
        self._buffers = self._allocate_buffers()

    def _allocate_buffers(self) -> BatchBuffers:
        largest = self._sampler.largest
        size = len(largest.indices) * largest.width * largest.height * 3
        count = self.plan.prefetch + 2  # the consumer holds a batch while it requests the next
        return SharedBuffers(count, size) if self.plan.workers else BufferPool(count, size)

    @property
    def plan(self) -> LoaderPlan:
        """The current settings and their reasons; threads and cache change while loading."""
        return self._tuner.plan

    @property
    def waited(self) -> float:
        """Seconds that the consumer has waited for batches."""
        return self._tuner.meter.total.wait_seconds

    def report(self) -> LoaderReport:
        """Return measured times and memory, and advice if the consumer waits for data."""
        tuner, cache = self._tuner, self._maker.decoder.cache
        tuner.memory.sample(self._pids())
        measured = LoaderMeasurement(
            decoding=self._semaphore.peak,
            batches=self._buffers.nbytes,
            cache=cache.used if cache is not None else 0,
            workers=tuner.memory.workers,
            process=tuner.memory.growth,
        )
        bottleneck = describe_bottleneck(tuner, self.index)
        return LoaderReport(self.plan, measured, dataclasses.replace(tuner.meter.total), tuner.meter.recent, bottleneck)

    def __len__(self) -> int:
        return len(self._batches_of(self._epoch))

    @property
    def last(self) -> int:
        """Number of samples in the last batch of an epoch."""
        return len(self._batches_of(self._epoch)[len(self) - 1].indices)

    def _batches_of(self, epoch: int) -> Sequence[BatchSpec]:
        """Return the batches of an epoch; the last result is kept, because shuffling millions of samples is slow."""
        if self._epoch_batches is None or self._epoch_batches[0] != epoch:
            self._epoch_batches = (epoch, self._sampler.epoch(epoch))
        return self._epoch_batches[1]

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, *, clock: Clock = time.perf_counter, pin_memory: bool = False) -> Iterator[Batch]:
        """Start a pass for a consumer that requests batches before it needs them, such as a prefetcher.

        Args:
            clock: measures waiting; it must stand still while the batch is not needed yet.
            pin_memory: return the images in pinned memory.
        """
        self._stop_pass()
        self._buffers.reset()
        self._pool = self._pool or self._start_workers()
        start, self._start = self._start, 0
        timings, peak = self._tuner.meter.total, self._semaphore.peak
        self._semaphore = semaphore = ByteSemaphore(self._limits.budget, timings, peak)
        batches, prefetch = self._batches_of(self._epoch), self.plan.prefetch
        spec = EpochSpec(batches, prefetch, self._buffers, semaphore, self._skipped, self._replace, timings)
        threads = WorkerThreads(WorkQueue(spec, start), self._pool, self._epoch)
        self._tuner.meter.start_pass(prefetch + 1)
        self._running, self._position = threads, (self._epoch, start)
        threads.resize(self.plan.threads)
        return self._iterate(threads, allocate_pinned if pin_memory else None, clock)

    def _start_workers(self) -> WorkerPool:
        plan, buffers, images = self.plan, self._buffers, self._images_per_sample
        if not isinstance(buffers, SharedBuffers):
            return LocalWorkers(plan.max_threads, self._maker)
        maker = dataclasses.replace(self._maker, index=self._maker.index.shared())
        # If the samples of all workers fit the budget at once, they need not wait for it.
        fits = images is not None and plan.max_threads * images * self._limits.largest_image <= self._limits.budget
        return ProcessWorkers(plan.workers, maker, buffers, plan.start_method, limited=not fits)

    def _iterate(self, threads: WorkerThreads, allocate: Allocate | None, clock: Clock) -> Iterator[Batch]:
        queue = threads.queue
        try:
            started, mark = time.perf_counter(), clock()
            while (pending := queue.take()) is not None:
                waited = clock() - mark
                self._tuner.meter.total.wait_seconds += waited
                if pending.error is not None:
                    raise pending.error[1]
                self._position = (self._epoch, queue.next_batch)
                batch = self._to_batch(pending, self._buffers.hand_over(pending.canvas, allocate))
                pending = None  # so that the consumer alone holds the memory of the batch
                if batch is not None:
                    yield batch
                del batch
                now = time.perf_counter()
                self._tuner.add_batch(now - started - waited, threads, self._pids())
                started, mark = now, clock()
            if not queue.closed:
                self._epoch += 1
                self._position = (self._epoch, 0)
                self._tuner.end_pass(self._pids())
        finally:
            threads.close()

    def _to_batch(self, pending: PendingBatch, canvas: Bytes) -> Batch | None:
        import torch  # noqa: PLC0415  indexing and decoding work without it

        indices, targets, kept = pending.indices, pending.targets, pending.kept
        if not kept.all():
            if not kept.any():
                return None
            canvas, indices = canvas[kept], indices[kept]
            targets = [target for target, is_kept in zip(targets, kept, strict=True) if is_kept]
        images = torch.from_numpy(canvas).permute(0, 3, 1, 2)
        return Batch(images, torch.from_numpy(indices), self._collate(targets))

    def _pids(self) -> list[int]:
        return self._pool.pids() if self._pool is not None else []

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; a position in the same epoch, from `load_state_dict`, is kept."""
        if epoch != self._epoch:
            self._epoch, self._start = epoch, 0
            self._position = (epoch, 0)

    def state_dict(self, position: tuple[int, int] | None = None) -> dict[str, int | str]:
        """Return the position after the last batch that was consumed.

        Args:
            position: epoch and number of consumed batches, from a consumer that prefetches: the loader does not know
                which of the prefetched batches were used.
        """
        epoch, batch = position or self._position
        return {"epoch": epoch, "batch": batch, "order": self._order_hash(epoch)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the position of another loader with the same data and settings.

        Raises:
            UsageError: the other loader has a different order.
        """
        epoch, batch = int(state["epoch"]), int(state["batch"])
        if state["order"] != self._order_hash(epoch):
            raise UsageError(
                "the saved position belongs to a loader with another order (files, seed, batch, size or world size)",
                "resume with the settings of the saved run",
            )
        self._stop_pass()
        self._epoch, self._start = epoch, batch
        self._position = (epoch, batch)

    def _order_hash(self, epoch: int) -> str:
        batches = self._batches_of(epoch)
        digest = hashlib.sha256(str(len(batches)).encode())
        for number in {0, len(batches) // 2, len(batches) - 1} if len(batches) else ():
            batch = batches[number]
            digest.update(np.asarray(batch.indices, np.int64).tobytes() + str(batch[1:]).encode())
            for index in batch.indices[:_MAX_HASHED_PATHS]:
                digest.update(os.fsencode(self.index.path(self._maker.image_of(int(index)))))
        return digest.hexdigest()

    def skipped(self) -> list[SkippedImage]:
        """Return the files that are not used, each with its reason: from the index, and from decoding."""
        later = [(image, reason) for image, reason in sorted(self._skipped.items()) if not self.index.reason(image)]
        return self.index.skipped() + [SkippedImage(self.index.path(image), reason) for image, reason in later]

    def _stop_pass(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def close(self) -> None:
        """Stop threads and worker processes, and release shared memory; the loader can be used again."""
        self._stop_pass()
        if self._pool is not None:
            self._tuner.memory.sample(self._pids())
            self._pool.close()
            self._pool = None
        self._buffers.close()

    def __enter__(self) -> Loader:  # noqa: PYI034  Self is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_not_empty(index: ImageIndex, limits: DecodeLimits) -> None:
    if not len(index):
        raise UsageError("there are no images", "name images, or a folder of images")
    if not len(limits.samples):
        reason = next(iter(limits.skipped.values()), None) or index.skipped()[0].reason
        raise UsageError(
            f"none of the {len(index)} files can be used; first reason: {reason}",
            "replace the files, or raise the budget",
        )
