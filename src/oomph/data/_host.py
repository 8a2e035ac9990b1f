"""Host memory that loading takes, and what there is of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from ..units import GIB, MIB
from ._room import HostResources, read_resources

_LEAST, _MOST = 64 * MIB, GIB
_SHARE = 4  # a quarter of what is left: the rest is the model's

# Private memory of an idle worker: measured with torch 2.13 for the CPU; ours import no torch.
_IDLE = {"fork": 11 * MIB, "spawn": 145 * MIB, "forkserver": 145 * MIB}
_THIN = 40 * MIB
# Bytes a pixel while a whole image is decoded, by library.
PER_PIXEL = {"pillow": 8, "cv2": 6, "simplejpeg": 3}


def default_budget(room: HostResources | None = None) -> int:
    """Bytes for decoding when nobody says: a quarter of what the machine leaves, at most a GiB."""
    return max(min((room or read_resources()).memory // _SHARE, _MOST), _LEAST)


@dataclass(frozen=True)
class LoaderWorkload:
    """How data are loaded; sizes in bytes.

    Attributes:
        batch: samples of a batch.
        sample: one sample, as it leaves the loader.
        decode: the most that decoding one image takes; see `PER_PIXEL` for other libraries. 0 where only the budget
            is known.
        workers: worker processes; 0 for our threads.
        threads: our threads; 0 where only the budget is known.
        prefetch: batches made ahead, by each worker of a DataLoader or all of our threads.
        start: how workers are started.
        pin: whether batches are copied to pinned memory.
        budget: what our admission lets in at once; None for a DataLoader, which lets everything in.
        index: names and labels.
        objects: of those, Python objects that forked workers copy by looking at them.
        cache: what libraries keep, in each process.
        copies: decoded copies that are kept in memory for the next epoch.
    """

    batch: int
    sample: int
    decode: int
    workers: int = 0
    threads: int = 0
    prefetch: int = 2
    start: str = "fork"
    pin: bool = False
    budget: int | None = None
    index: int = 0
    objects: int = 0
    cache: int = 0
    copies: int = 0


@dataclass(frozen=True)
class LoaderMemory:
    """Bytes that loading adds to a process and its workers, at most.

    Attributes:
        index: names and labels.
        workers: what worker processes hold while they do nothing.
        decoding: images being decoded, and samples on their way into a batch.
        batches: made ahead and in use.
        pinned: copies that the GPU reads.
        shared: of the batches, those in `/dev/shm`.
        copies: decoded copies that are kept in memory.
    """

    index: int
    workers: int
    decoding: int
    batches: int
    pinned: int
    shared: int
    copies: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.index + self.workers + self.decoding + self.batches + self.pinned + self.copies


def predict_loader_memory(load: LoaderWorkload) -> LoaderMemory:
    """Predict the host memory of a loader, ours or a DataLoader: an upper bound, 1.1 to 1.7 times what is measured.

    Raises:
        UsageError: no such way to start a process.
    """
    if load.start not in _IDLE:
        raise UsageError(f"start={load.start!r} is no way to start a process", f"say {', '.join(_IDLE)}")
    batch = load.batch * load.sample
    if load.budget is not None:
        return _ours(load, batch)
    each = max(load.workers, 1)
    ahead = load.workers * load.prefetch
    idle = _IDLE[load.start] + (load.objects if load.start == "fork" else load.index)
    return LoaderMemory(
        index=load.index,
        workers=load.workers * (idle + load.cache) + (load.cache if not load.workers else 0),
        decoding=each * (load.decode + load.batch * load.sample),
        batches=(ahead + 1) * batch,
        pinned=(ahead + 2) * _power_of_two(batch) if load.pin else 0,
        shared=ahead * batch,
        copies=load.copies,
    )


def _ours(load: LoaderWorkload, batch: int) -> LoaderMemory:
    """Decoding is at most what the budget says, however many hands; the ring is shared, not multiplied."""
    assert load.budget is not None  # noqa: S101  asked before
    busy = load.threads * load.decode
    slots = load.prefetch + 2
    return LoaderMemory(
        index=load.index,
        workers=load.workers * (_THIN + load.cache),
        decoding=min(load.budget, busy) if busy else load.budget,
        batches=(slots + (1 if load.workers else 0)) * batch,
        pinned=2 * _power_of_two(batch) if load.pin else 0,
        shared=slots * batch if load.workers else 0,
        copies=load.copies,
    )


def _power_of_two(size: int) -> int:
    """What torch's pinned allocator makes of a size."""
    return 1 << max(size - 1, 0).bit_length()
