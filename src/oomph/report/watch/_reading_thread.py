"""The thread that takes readings, so that a slow driver blocks neither the keys nor the exit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...errors import OomphError
from ...monitor import Reading, RunProgress

_MAX_STOP_SECONDS = 1.0


@dataclass(frozen=True)
class ProcessEnded:
    """The watched process has ended."""

    pid: int


@dataclass(frozen=True)
class CountReached:
    """The requested number of samples was taken."""


@dataclass(frozen=True)
class SelectedProgress:
    """The progress of the selected process, if it writes a Record."""

    pid: int
    progress: RunProgress | None


@dataclass(frozen=True)
class ReadingFailed:
    """An exception: an `OomphError` if a process can't be opened, else a bug."""

    error: Exception


Update = Reading | ProcessEnded | CountReached | SelectedProgress | ReadingFailed


class ReadsMemory(Protocol):
    """The part of a `Watcher` that the screen uses."""

    @property
    def is_alive(self) -> bool: ...
    def read(self) -> Reading: ...
    def read_progress(self, pid: int) -> RunProgress | None: ...
    def close(self) -> None: ...


class ReadingThread:
    """Takes a reading every `interval` seconds and passes it on.

    Args:
        open_watcher: Opens the watcher of a process, or of the machine if None.
        pid: The process to begin with.
        interval: Seconds between readings.
        count: Number of readings; 0 means no limit.
        publish: Called in this thread with each update.

    Raises:
        UsageError: The process doesn't exist.
    """

    def __init__(
        self,
        open_watcher: Callable[[int | None], ReadsMemory],
        pid: int | None,
        interval: float,
        count: int,
        publish: Callable[[Update], object],
    ) -> None:
        self._open_watcher, self._interval, self._count, self._publish = open_watcher, interval, count, publish
        self._watcher, self._watched = open_watcher(pid), pid
        self._target, self._selected = pid, pid
        self._taken, self._due = 0, time.monotonic()
        self._wake, self._stop = threading.Event(), threading.Event()
        # A daemon thread: the exit doesn't wait for a driver that hangs.
        self._thread = threading.Thread(target=self._run, name="oomph-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and release the driver."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_MAX_STOP_SECONDS)
        if not self._thread.is_alive():
            self._watcher.close()

    def show(self, pid: int | None) -> None:
        """Watch another process, or the machine if None."""
        self._target, self._selected = pid, pid
        self._wake.set()

    def select(self, pid: int | None) -> None:
        """Read the progress of a process."""
        self._selected = pid
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._switch()
                self._read_if_due()
                self._read_progress()
            except Exception as error:  # noqa: BLE001  shown after the terminal is restored
                self._publish(ReadingFailed(error))
                return
            self._wake.wait(max(self._due - time.monotonic(), 0))
            self._wake.clear()

    def _switch(self) -> None:
        target = self._target
        if target == self._watched:
            return
        try:
            watcher = self._open_watcher(target)
        except OomphError as error:
            if self._target == target:  # else another page was opened meanwhile
                self._target = self._watched
            self._publish(ReadingFailed(error))
            return
        self._watcher.close()
        self._watcher, self._watched, self._due = watcher, target, time.monotonic()

    def _read_if_due(self) -> None:
        if time.monotonic() < self._due:
            return
        self._due = max(self._due + self._interval, time.monotonic())
        if self._watched is not None and not self._watcher.is_alive:
            self._publish(ProcessEnded(self._watched))
            return
        self._publish(self._watcher.read())
        self._taken += 1
        if self._taken == self._count:
            self._publish(CountReached())
            self._stop.set()

    def _read_progress(self) -> None:
        selected = self._selected
        if selected is not None and not self._stop.is_set():
            self._publish(SelectedProgress(selected, self._watcher.read_progress(selected)))
