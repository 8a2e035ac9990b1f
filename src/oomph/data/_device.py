"""Batches on their way to a GPU, one ahead of the one in use."""

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


_PATIENCE = 10.0  # seconds that the thread may take to let go of the loader


def prefetch_to_device(batches: Iterable[Batch], device: str | torch.device) -> Iterator[Batch]:
    """Batches with their images on a device, as bytes: a quarter of what floats would move.

    On a GPU a thread has each batch put into pinned memory, unless the loader's plan says no, and sends it while the
    one before is in use: whoever trains only ever waits for the copy that it needs, and then on the GPU. A batch for
    which the GPU has no room stays on the host.
    """
    import torch  # noqa: PLC0415

    target = torch.device(device)
    # Asked for now, so that batches are being made before the first one is wanted.
    if target.type != "cuda":
        return _moved(iter(batches), target)
    if isinstance(batches, Loader):
        clock = _Stopwatch()
        return iter(_Sender(batches.ahead(clock, pin=_pins(batches.plan)), target, clock))
    return iter(_Sender((batch._replace(images=batch.images.pin_memory()) for batch in batches), target))


def _moved(batches: Iterator[Batch], target: torch.device) -> Iterator[Batch]:
    for batch in batches:
        yield batch._replace(images=batch.images.to(target))


class _Stopwatch:
    """Seconds in which it ran; one thread starts and stops it, others may look."""

    def __init__(self) -> None:
        self._before, self._since = 0.0, math.inf
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            return self._before + max(time.perf_counter() - self._since, 0.0)

    def __enter__(self) -> None:
        with self._lock:
            self._since = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        now = self()
        with self._lock:
            self._before, self._since = now, math.inf


class _Sender:
    """A thread that sends batches; at most one lies on the device beside the one in use.

    The clock runs while a batch is waited for: the thread waits for batches far ahead, which costs nobody anything.
    """

    def __init__(self, batches: Iterator[Batch], target: torch.device, clock: _Stopwatch | None = None) -> None:
        import torch  # noqa: PLC0415

        self._batches, self._target, self._clock = batches, target, clock or _Stopwatch()
        self._stream = torch.cuda.Stream(target)
        self._room = threading.Semaphore(1)
        self._sent: queue.SimpleQueue[tuple[Batch, Any] | BaseException | None] = queue.SimpleQueue()
        self._flying: list[tuple[Any, torch.Tensor]] = []
        self._over = False
        self._thread = threading.Thread(target=self._work, name="oomph-sender", daemon=True)

    def __iter__(self) -> Iterator[Batch]:
        import torch  # noqa: PLC0415

        self._thread.start()
        try:
            while (sent := self._next()) is not None:
                if isinstance(sent, BaseException):
                    raise sent
                batch, arrived = sent
                if arrived is not None:
                    use = torch.cuda.current_stream(self._target)
                    use.wait_event(arrived)
                    batch.images.record_stream(use)
                self._room.release()
                del sent
                yield batch
                del batch
        finally:
            self._over = True
            self._room.release()
            if threading.current_thread() is not self._thread:
                self._thread.join(_PATIENCE)  # it may be copying a batch out of memory that the next pass writes to

    def _next(self) -> tuple[Batch, Any] | BaseException | None:
        with self._clock:
            return self._sent.get()

    def _work(self) -> None:
        try:
            for batch in self._batches:
                if not self._send(batch):
                    break
        except BaseException as error:  # noqa: BLE001  it is the trainer's to see
            self._sent.put(error)
        else:
            self._sent.put(None)
        finally:
            with contextlib.suppress(AttributeError):  # any iterator may be sent; loaders end their pass here
                self._batches.close()  # type: ignore[attr-defined]

    def _send(self, batch: Batch) -> bool:
        import torch  # noqa: PLC0415

        self._room.acquire()
        if self._over:
            return False
        try:
            with torch.cuda.device(self._target), torch.cuda.stream(self._stream):
                images = batch.images.to(self._target, non_blocking=True)
                arrived = torch.cuda.Event()
                arrived.record()
        except torch.OutOfMemoryError:  # there is no room beside the step that is under way
            self._sent.put((batch, None))
            return True
        self._sent.put((batch._replace(images=images), arrived))
        # What is copied from must stay as it is until it was: pinned memory that is let go of is given out again.
        self._flying = [one for one in self._flying if not one[0].query()] + [(arrived, batch.images)]
        return True


def _pins(plan: LoaderPlan) -> bool:
    """Whether there is memory to pin; a plan that knew of no GPU didn't think of it."""
    return plan.pin or (plan.options.pin is None and not plan.room.gpu)
