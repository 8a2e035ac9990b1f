"""`prefetch_to_device`: copies the next batch to the GPU while the current one is in use."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .loader import Batch, Loader, LoaderPlan

if TYPE_CHECKING:
    import torch


_JOIN_SECONDS = 10.0


def prefetch_to_device(batches: Iterable[Batch], device: str | torch.device) -> Iterator[Batch]:
    """Yield batches with their images on a device, as bytes: a quarter of the traffic of float32.

    On a GPU, a thread copies every batch to pinned memory (unless the plan of the loader forbids it) and from there to
    the device, while the previous batch is in use. The consumer only waits for a copy that isn't finished, and it
    waits on the GPU. A batch for which the GPU has no free memory stays on the host.
    """
    import torch  # noqa: PLC0415

    target = torch.device(device)
    # The pass starts here and not at the first next(), so that batches are being made before they are needed.
    if target.type != "cuda":
        return _move(iter(batches), target)
    if isinstance(batches, Loader):
        clock = _Stopwatch()
        ready = batches.batches(clock=clock, pin_memory=_should_pin(batches.plan))
        return iter(_Prefetcher(ready, target, clock))
    return iter(_Prefetcher((batch._replace(images=batch.images.pin_memory()) for batch in batches), target))


def _move(batches: Iterator[Batch], target: torch.device) -> Iterator[Batch]:
    for batch in batches:
        yield batch._replace(images=batch.images.to(target))


class _Stopwatch:
    """A clock that runs only inside its `with` block. One thread starts and stops it; other threads may read it."""

    def __init__(self) -> None:
        self._elapsed, self._started = 0.0, math.inf
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            return self._elapsed + max(time.perf_counter() - self._started, 0.0)

    def __enter__(self) -> None:
        with self._lock:
            self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        elapsed = self()
        with self._lock:
            self._elapsed, self._started = elapsed, math.inf


class _Prefetcher:
    """A thread that copies batches to the device, at most one ahead of the batch in use.

    The clock runs while the consumer waits. The thread itself also waits for batches, but that delays nothing.
    """

    def __init__(self, batches: Iterator[Batch], target: torch.device, clock: _Stopwatch | None = None) -> None:
        import torch  # noqa: PLC0415

        self._batches, self._target, self._clock = batches, target, clock or _Stopwatch()
        self._stream = torch.cuda.Stream(target)
        self._slot = threading.Semaphore(1)
        self._ready: queue.SimpleQueue[tuple[Batch, Any] | BaseException | None] = queue.SimpleQueue()
        self._in_flight: list[tuple[Any, torch.Tensor]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="oomph-prefetch", daemon=True)

    def __iter__(self) -> Iterator[Batch]:
        import torch  # noqa: PLC0415

        self._thread.start()
        try:
            while (item := self._next()) is not None:
                if isinstance(item, BaseException):
                    raise item
                batch, copied = item
                if copied is not None:
                    stream = torch.cuda.current_stream(self._target)
                    stream.wait_event(copied)
                    batch.images.record_stream(stream)
                self._slot.release()
                del item
                yield batch
                del batch
        finally:
            self._closed = True
            self._slot.release()
            if threading.current_thread() is not self._thread:
                # The thread may still be copying out of a buffer that the next pass would overwrite.
                self._thread.join(_JOIN_SECONDS)

    def _next(self) -> tuple[Batch, Any] | BaseException | None:
        with self._clock:
            return self._ready.get()

    def _run(self) -> None:
        try:
            for batch in self._batches:
                if not self._send(batch):
                    break
        except BaseException as error:  # noqa: BLE001  raised again in the thread of the consumer
            self._ready.put(error)
        else:
            self._ready.put(None)
        finally:
            with contextlib.suppress(AttributeError):  # only generators have close(), which ends the loader's pass
                self._batches.close()  # type: ignore[attr-defined]

    def _send(self, batch: Batch) -> bool:
        import torch  # noqa: PLC0415

        self._slot.acquire()
        if self._closed:
            return False
        try:
            with torch.cuda.device(self._target), torch.cuda.stream(self._stream):
                images = batch.images.to(self._target, non_blocking=True)
                copied = torch.cuda.Event()
                copied.record()
        except torch.OutOfMemoryError:  # the current step left no memory for it
            self._ready.put((batch, None))
            return True
        self._ready.put((batch._replace(images=images), copied))
        # Keep the source until the copy is finished: torch reuses pinned memory as soon as it is released.
        self._in_flight = [pending for pending in self._in_flight if not pending[0].query()]
        self._in_flight.append((copied, batch.images))
        return True


def _should_pin(plan: LoaderPlan) -> bool:
    """Return True if the plan pins memory, or if it was made without knowing of a GPU and pinning isn't forbidden."""
    return plan.pin_memory or (plan.options.pin_memory is None and not plan.resources.gpu)
