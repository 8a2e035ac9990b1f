"""Prediction of the host memory that a loader needs."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from ..units import GIB, MIB
from ._resources import HostResources, read_resources

MIN_BUDGET_BYTES = 64 * MIB
_MAX_BUDGET_BYTES = GIB
_BUDGET_DIVISOR = 4  # the other three quarters of the available memory are for the model

# Private memory of an idle DataLoader worker that imports torch, measured with torch 2.13 for the CPU.
_IDLE_WORKER_BYTES = {"fork": 11 * MIB, "spawn": 145 * MIB, "forkserver": 145 * MIB}
_IDLE_OOMPH_WORKER_BYTES = 40 * MIB  # oomph's workers don't import torch
START_METHODS = tuple(_IDLE_WORKER_BYTES)
# Peak bytes per pixel while a library decodes a whole image.
PER_PIXEL = {"pillow": 8, "cv2": 6, "simplejpeg": 3}


def default_budget(resources: HostResources | None = None) -> int:
    """Return the default decoding budget: a quarter of the available memory, between 64 MiB and 1 GiB."""
    available = (resources or read_resources()).memory
    return max(min(available // _BUDGET_DIVISOR, _MAX_BUDGET_BYTES), MIN_BUDGET_BYTES)


@dataclass(frozen=True)
class LoaderWorkload:
    """Settings of a loader that determine its memory. Sizes are in bytes.

    Attributes:
        batch: samples per batch.
        sample_bytes: size of one sample as the loader yields it.
        decode_bytes: peak of decoding one image; see `PER_PIXEL` for other libraries. 0 if only the budget is known.
        workers: worker processes; 0 for oomph's threads.
        threads: oomph's threads; 0 if only the budget is known.
        prefetch: batches made ahead, per worker of a DataLoader or in total for oomph's loader.
        start_method: how worker processes are started: "fork", "spawn" or "forkserver".
        pin_memory: batches are copied to pinned memory.
        budget: bytes that oomph's loader lets decoding use at once; None for a DataLoader, which has no limit.
        index_bytes: names and labels.
        object_bytes: the part of the index that forked workers copy because it consists of Python objects.
        library_bytes: memory that libraries keep in each process.
        cache_bytes: decoded images kept in memory for the next epoch.
    """

    batch: int
    sample_bytes: int
    decode_bytes: int
    workers: int = 0
    threads: int = 0
    prefetch: int = 2
    start_method: str = "fork"
    pin_memory: bool = False
    budget: int | None = None
    index_bytes: int = 0
    object_bytes: int = 0
    library_bytes: int = 0
    cache_bytes: int = 0


@dataclass(frozen=True)
class LoaderMemory:
    """Upper bound of the memory that a loader adds to its process and its workers, in bytes.

    Attributes:
        index: names and labels.
        workers: idle worker processes.
        decoding: images being decoded, and samples on their way into a batch.
        batches: batches made ahead and in use.
        pinned: pinned copies that the GPU reads.
        shared: the part of the batches that is in `/dev/shm`.
        cache: decoded images kept in memory.
    """

    index: int
    workers: int
    decoding: int
    batches: int
    pinned: int
    shared: int
    cache: int = 0

    @property
    def total(self) -> int:
        """The sum of all parts; `shared` is part of `batches`."""
        return self.index + self.workers + self.decoding + self.batches + self.pinned + self.cache


def check_start_method(start_method: str) -> None:
    """Raise UsageError if a start method for worker processes does not exist."""
    if start_method not in START_METHODS:
        raise UsageError(f"start_method={start_method!r} does not exist", f"choose one of {', '.join(START_METHODS)}")


def predict_loader_memory(workload: LoaderWorkload) -> LoaderMemory:
    """Predict the host memory of oomph's loader or of a DataLoader: an upper bound, 1.1 to 1.7 times the measured peak.

    Raises:
        UsageError: the start method does not exist.
    """
    check_start_method(workload.start_method)
    batch = workload.batch * workload.sample_bytes
    if workload.budget is not None:
        return _predict_oomph(workload, workload.budget, batch)
    processes = max(workload.workers, 1)
    prefetched = workload.workers * workload.prefetch
    # Also in shared memory: the loop holds one batch until it has the next one, when a worker already makes another.
    held = 2 if workload.workers else 1
    copied = workload.object_bytes if workload.start_method == "fork" else workload.index_bytes
    worker = _IDLE_WORKER_BYTES[workload.start_method] + copied + workload.library_bytes
    return LoaderMemory(
        index=workload.index_bytes,
        workers=workload.workers * worker if workload.workers else workload.library_bytes,
        decoding=processes * (workload.decode_bytes + batch),
        batches=(prefetched + held) * batch,
        pinned=(prefetched + 2) * _next_power_of_two(batch) if workload.pin_memory else 0,
        shared=(prefetched + held) * batch if workload.workers else 0,
        cache=workload.cache_bytes,
    )


def _predict_oomph(workload: LoaderWorkload, budget: int, batch: int) -> LoaderMemory:
    """Predict for oomph's loader: workers share one budget and one set of batch buffers."""
    busy = workload.threads * workload.decode_bytes
    buffers = workload.prefetch + 2
    return LoaderMemory(
        index=workload.index_bytes,
        workers=workload.workers * (_IDLE_OOMPH_WORKER_BYTES + workload.library_bytes),
        decoding=min(budget, busy) if busy else budget,
        batches=(buffers + (1 if workload.workers else 0)) * batch,
        pinned=2 * _next_power_of_two(batch) if workload.pin_memory else 0,
        shared=buffers * batch if workload.workers else 0,
        cache=workload.cache_bytes,
    )


def _next_power_of_two(size: int) -> int:
    """Return the size that torch's pinned-memory allocator reserves."""
    return 1 << max(size - 1, 0).bit_length()
