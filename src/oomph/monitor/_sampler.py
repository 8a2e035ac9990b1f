"""The sampler: a thread that writes a sample into a Record every second."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from os import PathLike
from types import TracebackType

from ..errors import UsageError
from ..failures import classify_exception
from ._probe import Probe
from ._recorder import Recorder

_FASTEST = 0.01  # seconds; below that the sampler itself would be what is measured


class Sampler:
    """Samples a process tree into a Record until it is closed; use it as a context manager.

    Args:
        recorder: where samples go.
        interval: seconds between samples.
        pid: the process at the top of the tree; this process if None.
        device: only this GPU, by the driver's number; all if None.

    Raises:
        UsageError: the interval is no time, or there is no such process.
    """

    def __init__(
        self, recorder: Recorder, interval: float = 1.0, pid: int | None = None, device: int | None = None
    ) -> None:
        if not interval >= _FASTEST:
            raise UsageError(f"an interval of {interval!r} seconds", f"it must be at least {_FASTEST}")
        self._recorder, self._interval = recorder, interval
        self._probe = Probe(pid, device)
        self._stop = threading.Event()
        self._failed = False
        # A daemon: a run that ends by an exception is not kept alive by its own observer.
        self._thread = threading.Thread(target=self._run, name="oomph-sampler", daemon=True)

    def __enter__(self) -> Sampler:  # noqa: PYI034  Self came with Python 3.11
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take a last sample and end the thread."""
        if self._thread.is_alive():
            self._stop.set()
            self._thread.join()
            self._sample()
        self._probe.close()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._sample()
            due = max(due + self._interval, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def _sample(self) -> None:
        try:
            self._recorder.sample(self._probe.read())
        except Exception as error:  # noqa: BLE001  watching must never end what is watched
            if not self._failed:
                self._failed = True
                self._recorder.event("sampler-failed", error=f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def watch(
    path: str | PathLike[str] = "oomph-record.jsonl", *, interval: float = 1.0, device: int | None = None
) -> Iterator[Recorder]:
    """Sample this process and its children into a Record while the block runs.

    `oomph explain` reads the file afterwards, also after `kill -9`. Steps are yours to add:

        with oomph.watch("run.jsonl") as record:
            for number, batch in enumerate(loader):
                ...
                record.step({"step": number, "seconds": seconds, "loss": loss.item()})

    Raises:
        UsageError: the file can't be written, or the interval is no time.
    """
    with Recorder(path) as recorder, Sampler(recorder, interval, device=device):
        try:
            yield recorder
        except BaseException as error:
            found = classify_exception(error)
            recorder.event(
                "error",
                error=type(error).__name__,
                text=str(error)[:2000],
                kind=None if found is None else found.kind.value,
            )
            raise
