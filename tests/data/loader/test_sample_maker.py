from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from oomph.data import Picture, Timings, Window
from oomph.data.loader._sample_maker import ByteSemaphore, PoolClosed, WindowCache


def test_semaphore_admits_only_what_fits() -> None:
    timings = Timings()
    semaphore = ByteSemaphore(100, timings)
    admitted = threading.Event()

    def wait_for_60() -> None:
        with semaphore.acquire(60):
            admitted.set()

    with semaphore.acquire(60):
        waiter = threading.Thread(target=wait_for_60)
        waiter.start()
        assert not admitted.wait(0.05)
    waiter.join()
    assert admitted.is_set()
    assert (semaphore.used, semaphore.peak) == (0, 60)
    assert timings.budget_wait_seconds > 0.04


def test_request_above_the_budget_runs_alone() -> None:
    semaphore = ByteSemaphore(100, Timings())
    with semaphore.acquire(500):
        assert semaphore.used == 500


def test_small_requests_do_not_overtake_a_large_one() -> None:
    semaphore, order = ByteSemaphore(100, Timings()), list[int]()

    def work(count: int) -> None:
        with semaphore.acquire(count):
            order.append(count)

    with semaphore.acquire(90):
        threads = []
        for count in (80, 5):
            threads.append(threading.Thread(target=work, args=(count,)))
            threads[-1].start()
            time.sleep(0.02)
        assert order == []
    for thread in threads:
        thread.join()
    assert order[0] == 80


def test_closing_the_semaphore_wakes_waiting_threads() -> None:
    semaphore, errors = ByteSemaphore(100, Timings()), list[type]()

    def wait() -> None:
        try:
            with semaphore.acquire(50):
                pass
        except PoolClosed:
            errors.append(PoolClosed)

    with semaphore.acquire(90):
        waiter = threading.Thread(target=wait)
        waiter.start()
        semaphore.close()
        waiter.join()
    assert errors == [PoolClosed]
    with pytest.raises(PoolClosed), semaphore.acquire(1):
        pass


def test_window_cache_returns_each_sibling_once_and_evicts_the_oldest() -> None:
    windows = [Window(number, 0, number + 10, 10) for number in range(4)]
    pictures = [Picture(np.zeros((10, 10, 3), np.uint8), 40, 10, window) for window in windows]
    decoded: list[int] = []

    def decode() -> list[tuple[tuple[int, Window], Picture]]:
        decoded.append(1)
        return [((0, window), picture) for window, picture in zip(windows, pictures, strict=True)]

    cache = WindowCache(2 * 300)  # two windows
    assert cache.get((0, windows[0]), decode) is pictures[0]
    assert cache.get((0, windows[3]), decode) is pictures[3]
    assert len(decoded) == 1
    cache.get((0, windows[1]), decode)  # was evicted
    assert len(decoded) == 2
