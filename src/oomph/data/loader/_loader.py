"""The loader: batches of images, made ahead by threads or worker processes, within a budget of bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import OomphError, UsageError
from .._host import LoaderMemory
from .._index import ImageIndex, Name, SkippedImage, index_of
from ..decoding import PixelConversion
from ._account import LoadReport
from ._admission import Admission
from ._batch import Batch
from ._crew import Crew, Worker
from ._maker import Maker
from ._order import BatchSampler, BatchSpec, Shard, ShuffledSampler
from ._pilot import Pilot
from ._plan import Frame, LoaderOptions, LoaderPlan, asked, cache_of, copies_of, pooled, settle
from ._pool import Pool
from ._recipe import LetterboxSamples, SampleBuilder
from ._ring import BatchAllocator, Bytes, Ring, Slots
from ._run import Desk, Hand, Run, Work
from ._shelf import Shelf
from ._slab import Slab

_BROKEN = ("replace", "drop")
# Samples that a worker process is asked for in one message, at most: with each answer a thread takes Python's lock from
# whoever trains.
_AT_ONCE = 16
_PIXELS, _ALL = PixelConversion(), Shard()
Clock = Callable[[], float]


class Loader:
    """Batches of images, decoded by native threads within a budget of bytes.

        for images, indices, targets in Loader("photos/", size=640, batch=16, shuffle=True):
            images = images.to(device, non_blocking=True).float() / 255

    `images` are bytes of shape (samples, 3, height, width). They are yours for as long as you hold them: the memory is
    used again only when nothing refers to it any more.

    Each pass over the loader is an epoch; after it the next one begins. The order depends on seed and epoch alone,
    whatever the number of threads. `state_dict()` and `load_state_dict()` resume in the middle of an epoch.

    `plan` says how it loads and why, within what the machine leaves; it is tuned while batches are made. `report()`
    says how that went: waiting, memory beside what was predicted, and what would help when data are waited for.

    Args:
        source: an ImageIndex, a folder, or a list of files.
        size: side of the square canvas, or (height, width).
        batch: samples of a batch.
        recipe: how a sample is made of images; the whole image, letterboxed, without one.
        collate: puts the targets of a batch together; called with their list.
        shuffle: draw a new order every epoch.
        seed: what order and recipes' random numbers are drawn from.
        shard: which samples are taken, where several processes share them.
        sampler: a BatchSampler of your own, in place of `shuffle` and `shard`.
        broken: a sample that can't be decoded is "replace"d by the next one of the epoch, or "drop"ped from its batch.
        pixels: how 16-bit and many-band images become bytes.
        threads: decoding threads; chosen and tuned, without.
        workers: worker processes in their place, at most, for recipes that keep Python busy; how many of them are at
            work is tuned, unless `threads` says it.
        budget: bytes (or "256MB") that decoding may hold at once; chosen, without.
        options: other requests to the planner, or a finished plan.

    Raises:
        CannotFit: the least that loading takes is more than the machine leaves.
        UsageError: there is nothing to load, or a word has no meaning.
    """

    def __init__(  # noqa: PLR0913  the words of a DataLoader, each by its name
        self,
        source: ImageIndex | Name | Iterable[Name],
        size: int | tuple[int, int] = 640,
        batch: int = 2,
        *,
        builder: SampleBuilder | None = None,
        collate: Callable[[list[Any]], Any] = tuple,
        shuffle: bool = False,
        seed: int = 0,
        shard: Shard = _ALL,
        sampler: BatchSampler | None = None,
        on_error: str = "replace",
        pixels: PixelConversion = _PIXELS,
        threads: int | None = None,
        workers: int | None = None,
        budget: int | str | None = None,
        options: LoaderOptions | LoaderPlan | None = None,
    ) -> None:
        if on_error not in _BROKEN:
            raise UsageError(f"broken={on_error!r} is not a way to treat broken files", 'say "replace" or "drop"')
        self.index = self.dataset = index_of(source)  # the second name is what DataLoaders call it
        self.batch_size, self._collate, self._replace = batch, collate, on_error == "replace"
        height, width = (size, size) if isinstance(size, int) else size
        frame = Frame((width, height), max(batch, 1), builder is None, getattr(builder, "reuses", False))
        if sampler is not None:
            largest = sampler.largest
            frame = frame._replace(canvas=(largest.width, largest.height), batch=len(largest.indices))
        plan, shares = settle(self.index, frame, asked(options, threads=threads, workers=workers, budget=budget))
        images = 1 if builder is None else getattr(builder, "images", None)
        self._heaviest: int | None = None if images is None else images * shares.largest
        self._admitted, self._unusable = shares.admitted, dict(shares.skipped) if builder is None else {}
        if sampler is None and not len(shares.samples):
            raise _nothing(self.index, shares.skipped)
        self._order = sampler or ShuffledSampler(
            shares.samples, batch, (width, height), shuffle, seed, **dataclasses.asdict(shard), even=self._replace
        )
        shelf = Shelf(cache_of(plan))
        pool = Pool(pooled(plan.budget, reuses=frame.reuses))
        self._maker = Maker(
            self.index, builder or LetterboxSamples(), pixels, seed, shares.alone, pool, shelf, self._unusable
        )
        import torch  # noqa: F401, PLC0415  now, so that what it takes isn't counted as the loader's

        self._pilot = Pilot(plan, shelf, copies_of(self.index, frame.canvas), repeats=shuffle)
        self._epoch = self._start = 0
        self._run: Run | None = None
        self._plan: tuple[int, Sequence[BatchSpec]] | None = None
        self._place = (0, 0)
        self._crew: Crew | None = None
        self._slots: Slots = self._prepare()

    def _prepare(self) -> Slots:
        """Claim the memory of batches, so that a constructed loader is complete."""
        largest = self._order.largest
        size = len(largest.indices) * largest.width * largest.height * 3
        count = self.plan.prefetch + 2  # the consumer holds one while it asks for the next
        return Slab(count, size) if self.plan.workers else Ring(count, size)

    @property
    def plan(self) -> LoaderPlan:
        """How it loads, and why: threads and cache as they are by now."""
        return self._pilot.plan

    @property
    def budget(self) -> int:
        """Bytes that decoding may hold at once."""
        return self.plan.budget

    @property
    def waited(self) -> float:
        """Seconds that consumers waited for batches."""
        return self._pilot.pace.waited

    def predicted(self) -> LoaderMemory:
        """What the loader takes of the host at most: index, budget, batches, workers, pinned memory, copies."""
        return self.plan.memory

    def report(self) -> LoadReport:
        """What it did so far: memory beside what was predicted, waiting, and what would help."""
        return self._pilot.report(self.index, self._slots, self._pids())

    def __len__(self) -> int:
        return len(self._planned(self._epoch))

    @property
    def last(self) -> int:
        """Samples of an epoch's last batch, which may be fewer than those of the others."""
        return len(self._planned(self._epoch)[len(self) - 1].indices)

    def _planned(self, epoch: int) -> Sequence[BatchSpec]:
        """The batches of an epoch, remembered: shuffling millions takes a while."""
        if self._plan is None or self._plan[0] != epoch:
            self._plan = (epoch, self._order.epoch(epoch))
        return self._plan[1]

    def __iter__(self) -> Iterator[Batch]:
        return self._pass(None, time.perf_counter)

    def ahead(self, clock: Clock, *, pin: bool) -> Iterator[Batch]:
        """A pass for somebody who asks for batches before they are needed, as one who sends them to a GPU does.

        Args:
            clock: the seconds by which waiting is measured; it stands still while nobody needs the batch yet.
            pin: put images into pinned memory, which a GPU copies from while it computes.
        """
        return self._pass(_pinned if pin else None, clock)

    def _pass(self, room: BatchAllocator | None, clock: Clock) -> Iterator[Batch]:
        self._stop()
        self._slots.renew()
        begin, self._start = self._start, 0
        admission, ahead = Admission(self._admitted), self.plan.prefetch
        plan = self._planned(self._epoch)
        desk = Desk(Work(plan, ahead, self._slots, admission, self._unusable, self._replace), begin)
        hands = self._crewed().workers if self.plan.workers else None
        run = Run(desk, self._hands(admission, hands), self.plan.threads)
        self._pilot.begin(desk, admission)
        self._run, self._place = run, (self._epoch, begin)
        return self._batches(run, room, clock)

    def _batches(self, run: Run, room: BatchAllocator | None, clock: Clock) -> Iterator[Batch]:
        try:
            began, mark = time.perf_counter(), clock()
            while (job := run.desk.take()) is not None:
                waited = clock() - mark
                self._pilot.waited(waited)
                if job.fault is not None:
                    raise job.fault[1]
                self._place = (self._epoch, run.desk.wanted)
                batch = self._batch(self._slots.hand_out(job.canvas, room), job.indices, job.targets, job.kept)
                job = None
                if batch is not None:
                    yield batch
                del batch
                now = time.perf_counter()
                self._pilot.used(now - began - waited, run, self._pids())
                began, mark = now, clock()
            if not run.desk.closed:
                self._epoch += 1
                self._place = (self._epoch, 0)
                self._pilot.end(self._pids())
        finally:
            run.close()

    def _pids(self) -> list[int]:
        return self._crew.pids() if self._crew is not None else []

    def _batch(self, canvas: Bytes, indices: Any, targets: list[Any], kept: Any) -> Batch | None:
        import torch  # noqa: PLC0415  index and decoding work without it

        if not kept.all():
            if not kept.any():
                return None
            canvas, indices = canvas[kept], indices[kept]
            targets = [target for target, is_kept in zip(targets, kept, strict=True) if is_kept]
        images = torch.from_numpy(canvas).permute(0, 3, 1, 2)
        return Batch(images, torch.from_numpy(indices), self._collate(targets))

    def _hands(self, admission: Admission, workers: list[Worker] | None) -> list[Hand]:
        """What each thread does; as many as tuning may ask for."""
        maker, epoch = self._maker, self._epoch
        if workers is not None:
            free = self._heaviest is not None and self.plan.most * self._heaviest <= self._admitted
            most = _AT_ONCE if free else 1
            return [_driver(worker, maker, epoch, None if free else admission, most) for worker in workers]

        def perform(sample: int, canvas: Bytes) -> Any:
            return maker.make(sample, epoch, canvas, admission.take)

        return [Hand(perform)] * self.plan.most

    def _crewed(self) -> Crew:
        if self._crew is None:
            assert isinstance(self._slots, Slab)  # noqa: S101  prepared for workers
            maker = dataclasses.replace(self._maker, index=self._maker.index.shared())
            self._crew = Crew(self.plan.workers, maker, self._slots, self.plan.start)
        return self._crew

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; a place inside of the same epoch, from `load_state_dict`, is kept."""
        if epoch != self._epoch:
            self._epoch, self._start = epoch, 0
            self._place = (epoch, 0)

    def state_dict(self, place: tuple[int, int] | None = None) -> dict[str, int | str]:
        """Where the consumer is: everything up to the last batch it was given is done.

        Args:
            place: the epoch, and how many of its batches are done, where the consumer knows better: batches that wait
                on their way to a GPU were given out too.
        """
        epoch, batch = place or self._place
        return {"epoch": epoch, "batch": batch, "order": self._fingerprint(epoch)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to where another loader of the same data and settings was.

        Raises:
            UsageError: it had another order.
        """
        epoch, batch = int(state["epoch"]), int(state["batch"])
        if state["order"] != self._fingerprint(epoch):
            raise UsageError(
                "this place is of a loader with another order (other files, seed, batch, size or ranks)",
                "resume with the settings that it was saved with",
            )
        self._stop()
        self._epoch, self._start = epoch, batch
        self._place = (epoch, batch)

    def _fingerprint(self, epoch: int) -> str:
        plan = self._planned(epoch)
        digest = hashlib.sha256(str(len(plan)).encode())
        for number in {0, len(plan) // 2, len(plan) - 1} if len(plan) else ():
            planned = plan[number]
            digest.update(np.asarray(planned.indices, np.int64).tobytes() + str(planned[1:]).encode())
            for index in planned.indices[:64]:
                digest.update(os.fsencode(self.index.path(self._maker.image_of(int(index)))))
        return digest.hexdigest()

    def skipped(self) -> list[SkippedImage]:
        """Files that are not used, each with its reason: by their headers, and those that broke while decoding."""
        known = self.index.skipped()
        later = [(image, reason) for image, reason in sorted(self._unusable.items()) if not self.index.reason(image)]
        return known + [SkippedImage(self.index.path(image), reason) for image, reason in later]

    def _stop(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None

    def close(self) -> None:
        """Stop threads and worker processes; the loader can be used again."""
        self._stop()
        if self._crew is not None:
            self._pilot.look(self._pids())
            self._crew.close()
            self._crew = None
            self._slots = self._prepare()

    def __enter__(self) -> Loader:  # noqa: PYI034  Self is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _driver(worker: Worker, maker: Maker, epoch: int, admission: Admission | None, most: int) -> Hand:
    """What a thread does that has a worker process do it; without admission where all samples fit side by side."""

    def perform(sample: int, canvas: Bytes) -> Any:
        if admission is None:
            return worker.ask(sample, epoch, canvas)
        size = (canvas.shape[1], canvas.shape[0])
        with admission.take(maker.bytes_of(sample, epoch, size)):
            return worker.ask(sample, epoch, canvas)

    def perform_all(samples: list[int], canvas: Bytes) -> list[Any]:
        return worker.ask_all(samples, epoch, canvas)

    return Hand(perform, perform_all if admission is None else None, most)


def _pinned(shape: tuple[int, ...]) -> Bytes:
    """Memory that torch pins, and gives out again when it was let go of; plain memory where nothing can be pinned."""
    import torch  # noqa: PLC0415  index and decoding work without it

    try:
        return torch.empty(shape, dtype=torch.uint8, pin_memory=True).numpy()
    except RuntimeError:  # there is no GPU, or a limit on such memory was reached
        return np.empty(shape, np.uint8)


def _nothing(index: ImageIndex, skipped: dict[int, str]) -> OomphError:
    if not len(index):
        return UsageError("there are no images here", "name images or a folder of them")
    first = next(iter(skipped.values()), None) or index.skipped()[0].reason
    return UsageError(
        f"none of the {len(index)} files can be used (the first one: {first})", "look at the index's aside()"
    )
