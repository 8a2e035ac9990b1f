from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oomph.errors import UsageError
from oomph.monitor import Reading
from oomph.report.watch._reading_thread import (
    CountReached,
    ProcessEnded,
    ReadingFailed,
    ReadingThread,
    SelectedProgress,
    Update,
)

from .fake_watcher import FakeMachine

Updates = queue.Queue[Update]


@contextmanager
def running(
    machine: FakeMachine, pid: int | None = None, count: int = 0, interval: float = 0.01
) -> Iterator[tuple[ReadingThread, Updates]]:
    updates: Updates = queue.Queue()
    thread = ReadingThread(machine.open, pid, interval, count, updates.put)
    thread.start()
    try:
        yield thread, updates
    finally:
        thread.stop()


def next_of(updates: Updates, kind: type) -> Update:
    while True:
        update = updates.get(timeout=5)
        if isinstance(update, kind):
            return update


def test_readings_come_at_the_interval() -> None:
    with running(FakeMachine(7), interval=0.05) as (_, updates):
        start = time.monotonic()
        for _ in range(4):
            next_of(updates, Reading)
    assert 0.14 < time.monotonic() - start < 2


def test_count_is_exact() -> None:
    with running(FakeMachine(7), count=3) as (_, updates):
        next_of(updates, CountReached)
    machine = FakeMachine(7)
    with running(machine, count=3) as (_, updates):
        kinds = [type(updates.get(timeout=5)) for _ in range(4)]
        time.sleep(0.05)
        assert updates.empty()
    assert kinds == [Reading, Reading, Reading, CountReached]


def test_another_process_is_shown_at_once_and_its_end_is_reported() -> None:
    machine = FakeMachine(7, 8)
    with running(machine, interval=60) as (thread, updates):
        next_of(updates, Reading)
        thread.show(8)
        update = next_of(updates, Reading)
        assert isinstance(update, Reading)
        assert update.root == 8
        progress = next_of(updates, SelectedProgress)
        assert isinstance(progress, SelectedProgress)
        assert progress.progress is not None
        assert progress.progress.step == 8
    assert (machine.opened, machine.closed) == ([None, 8], [None, 8])


def test_end_of_the_process() -> None:
    machine = FakeMachine(8)
    with running(machine, 8) as (_, updates):
        next_of(updates, Reading)
        del machine.processes[8]
        assert next_of(updates, ProcessEnded) == ProcessEnded(8)


def test_selection_reads_progress_without_a_sample() -> None:
    with running(FakeMachine(7, 8), interval=60) as (thread, updates):
        next_of(updates, Reading)
        thread.select(8)
        assert isinstance(updates.get(timeout=5), SelectedProgress)


def test_a_process_that_has_ended_meanwhile_is_reported_and_the_machine_stays() -> None:
    with running(FakeMachine(7)) as (thread, updates):
        thread.show(99)
        failure = next_of(updates, ReadingFailed)
        assert isinstance(failure, ReadingFailed)
        assert isinstance(failure.error, UsageError)
        update = next_of(updates, Reading)
        assert isinstance(update, Reading)
        assert update.root is None


def test_a_missing_process_is_an_error_before_the_thread_starts() -> None:
    with pytest.raises(UsageError), running(FakeMachine(), 99):
        pass


def test_an_error_in_a_reading_is_passed_on_and_ends_the_thread() -> None:
    machine = FakeMachine()
    machine.error = ZeroDivisionError()
    with running(machine) as (thread, updates):
        assert next_of(updates, ReadingFailed) == ReadingFailed(machine.error)
        thread._thread.join(5)
        assert not thread._thread.is_alive()


def test_a_driver_that_hangs_does_not_delay_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr("tests.report.watch.fake_watcher.FakeWatcher.read", lambda self: released.wait(30))
    monkeypatch.setattr("oomph.report.watch._reading_thread._MAX_STOP_SECONDS", 0.1)
    machine = FakeMachine()
    start = time.monotonic()
    with running(machine):
        pass
    assert time.monotonic() - start < 5
    assert machine.closed == []  # it is in use
    released.set()
