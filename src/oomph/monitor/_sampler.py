"""The sampler: a thread that writes samples into a Record."""

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

_MIN_INTERVAL_SECONDS = 0.01  # with a shorter interval, the sampler would mostly measure itself
_MAX_ERROR_TEXT = 2000  # characters


class Sampler:
    """Writes samples of a process tree into a Record until it is stopped; use it as a context manager.

    Args:
        recorder: The Record to write to.
        interval: Seconds between samples.
        pid: The root process of the tree; this process if None.
        device: Index of the only GPU to read; all GPUs if None.

    Raises:
        UsageError: The interval is too short, or the process doesn't exist.
    """

    def __init__(
        self, recorder: Recorder, interval: float = 1.0, pid: int | None = None, device: int | None = None
    ) -> None:
        if not interval >= _MIN_INTERVAL_SECONDS:
            raise UsageError(
                f"the interval is {interval!r} seconds", f"it must be at least {_MIN_INTERVAL_SECONDS} seconds"
            )
        self._recorder, self._interval = recorder, interval
        self._probe = Probe(pid, device)
        self._stop = threading.Event()
        self._has_failed = False
        # A daemon thread doesn't keep a run alive that ends with an exception.
        self._thread = threading.Thread(target=self._run, name="oomph-sampler", daemon=True)

    def __enter__(self) -> Sampler:  # noqa: PYI034  Self came with Python 3.11
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take a last sample and stop the thread."""
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
        except Exception as error:  # noqa: BLE001  a failing sampler must not stop the run
            if not self._has_failed:
                self._has_failed = True
                self._recorder.event("sampler-failed", error=f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def watch(
    path: str | PathLike[str] = "oomph-record.jsonl", *, interval: float = 1.0, device: int | None = None
) -> Iterator[Recorder]:
    """Write samples of this process and its children into a Record while the block runs.

    `oomph explain` reads the file afterwards, also after `kill -9`. Add training steps like this:

        with oomph.watch("run.jsonl") as record:
            for number, batch in enumerate(loader):
                ...
                record.step({"step": number, "seconds": seconds, "loss": loss.item()})

    Raises:
        UsageError: The file can't be written, or the interval is too short.
    """
    with Recorder(path) as recorder, Sampler(recorder, interval, device=device):
        try:
            yield recorder
        except BaseException as error:
            record_error(recorder, error)
            raise


def record_error(recorder: Recorder, error: BaseException) -> None:
    """Write the exception that ends a run into its Record."""
    finding = classify_exception(error)
    recorder.event(
        "error",
        error=type(error).__name__,
        text=str(error)[:_MAX_ERROR_TEXT],
        kind=None if finding is None else finding.kind.value,
    )
