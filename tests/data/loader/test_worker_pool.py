from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

import pytest

from oomph.data import HostResources, ImageIndex, Loader, LoaderOptions, TransformedSamples, plan_loader
from oomph.data.loader._worker_pool import chunk_size
from oomph.units import GIB

from ..builders import SlowSamples, darken, sleep_20_ms
from ..images import save_colors

RESOURCES = HostResources(memory=16 * GIB, limited_by="RAM", shm=8 * GIB, cores=12, gpu=False)


@pytest.mark.parametrize(
    ("batch", "prefetch", "threads", "expected"),
    [(64, 4, 10, 16), (64, 4, 14, 11), (8, 2, 2, 4), (2, 2, 2, 1), (1, 4, 1, 1), (100, 4, 3, 15), (5, 1, 32, 1)],
)
def test_chunks_are_equal_and_keep_all_threads_busy(batch: int, prefetch: int, threads: int, expected: int) -> None:
    assert chunk_size(batch, prefetch, threads, 16) == expected
    assert chunk_size(batch, prefetch, threads, 1) == 1
    chunks = -(-batch // expected)
    assert chunks * prefetch >= threads or expected == 1
    assert expected * chunks - batch < chunks


@pytest.mark.medium
def test_workers_added_during_a_pass_get_samples(tmp_path: Path) -> None:
    index = ImageIndex.of(save_colors(tmp_path, 8) * 16)
    options = LoaderOptions(workers=4, start_method="fork", prefetch=2)
    plan = plan_loader(index, 20, 8, options, dataclasses.replace(RESOURCES, cores=1))
    assert (plan.threads, plan.max_threads) == (1, 4)
    with Loader(index, 20, 8, builder=SlowSamples(), options=plan) as loader:
        pids = [set(batch.targets) for batch in loader]
    assert [len(batch) for batch in pids[:2]] == [1, 1]
    assert len(set.union(*pids[-4:])) == 4


@pytest.mark.medium
def test_pass_may_be_closed_by_two_threads(tmp_path: Path) -> None:
    options = LoaderOptions(workers=2, start_method="fork")
    with Loader(save_colors(tmp_path, 8) * 4, 20, 4, builder=SlowSamples(), options=options) as loader:
        for _ in range(3):
            batches = iter(loader)
            next(batches)
            running = loader._running
            assert running is not None
            other = threading.Thread(target=running.close)
            other.start()
            assert len(list(loader)) == 8  # the next pass uses the same processes
            other.join()
            assert not any(thread.is_alive() for thread in running._threads)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("seconds", "min_threads", "max_threads"), [(0.0, 4, 4), (0.05, 1, 2)], ids=["fast consumer", "slow consumer"]
)
def test_active_workers_follow_the_consumer(tmp_path: Path, seconds: float, min_threads: int, max_threads: int) -> None:
    index = ImageIndex.of(save_colors(tmp_path, 8) * 10)
    options = LoaderOptions(workers=4, start_method="fork")
    plan = plan_loader(index, 20, 4, options, dataclasses.replace(RESOURCES, cores=4))
    assert (plan.workers, plan.threads, plan.max_threads) == (4, 3, 4)
    builder = TransformedSamples(darken if seconds else sleep_20_ms)
    with Loader(index, 20, 4, builder=builder, options=plan) as loader:
        for _ in range(5):  # on a busy machine even a slow consumer waits at first
            for _ in loader:
                time.sleep(seconds)
            if min_threads <= loader.plan.threads <= max_threads:
                break
        assert min_threads <= loader.plan.threads <= max_threads
        assert len(loader._pids()) == 4


@pytest.mark.medium
def test_requested_number_of_active_workers_is_kept(tmp_path: Path) -> None:
    index = ImageIndex.of(save_colors(tmp_path, 2) * 20)
    plan = plan_loader(index, 20, 2, LoaderOptions(workers=4, threads=2, start_method="fork"), RESOURCES)
    assert (plan.workers, plan.threads, plan.max_threads) == (4, 2, 2)
    with Loader(index, 20, 2, builder=TransformedSamples(sleep_20_ms), options=plan) as loader:
        assert len(list(loader)) == 20
        assert (loader.plan.threads, loader.plan.why("threads")) == (2, "as requested")
