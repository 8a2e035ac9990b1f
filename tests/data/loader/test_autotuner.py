from __future__ import annotations

import time
from pathlib import Path

import pytest

from oomph.data import HostResources, ImageIndex, Loader, LoaderOptions, Timings, TransformedSamples, plan_loader
from oomph.data.loader import LoaderPlan
from oomph.data.loader._autotuner import ThreadTuner
from oomph.units import GIB

from ..builders import sleep_20_ms
from ..images import save_photos

RESOURCES = HostResources(memory=16 * GIB, limited_by="RAM", shm=8 * GIB, cores=12, gpu=False)


def timings(wait: float, consumer: float, work: float, budget_wait: float = 0.0) -> Timings:
    return Timings(10, wait, consumer, work, budget_wait)


def test_threads_are_added_while_the_consumer_waits() -> None:
    tuner = ThreadTuner(2, 16)
    assert tuner.update(timings(wait=8, consumer=2, work=10)) == 7  # 10 s of work per 2 s of the consumer, times 1.25
    assert tuner.update(timings(wait=0.1, consumer=2, work=10)) == 7


def test_useless_threads_are_removed_and_not_tried_again() -> None:
    tuner = ThreadTuner(4, 16)
    waiting = timings(wait=8, consumer=2, work=40)
    assert tuner.update(waiting) == 16
    assert not tuner.is_exhausted
    assert tuner.update(waiting) == 4
    assert tuner.update(waiting) == 4
    assert tuner.is_exhausted


def test_threads_are_removed_while_the_consumer_does_not_wait() -> None:
    tuner = ThreadTuner(8, 8)
    assert tuner.update(timings(wait=0, consumer=10, work=5)) == 1
    assert tuner.update(timings(wait=5, consumer=10, work=15)) == 2
    assert tuner.update(timings(wait=0, consumer=10, work=5)) == 2  # one was too few


def test_minimum_is_forgotten_after_a_pass() -> None:
    tuner = ThreadTuner(10, 14)
    assert tuner.update(timings(wait=5, consumer=5, work=100)) == 14
    assert tuner.update(timings(wait=0, consumer=5, work=10)) == 11
    tuner.end_pass()
    assert tuner.update(timings(wait=0, consumer=5, work=10)) == 3


def test_waiting_for_the_budget_does_not_count_as_work() -> None:
    assert ThreadTuner(4, 16).update(timings(wait=8, consumer=4, work=40, budget_wait=36)) == 5


def plan_without_cache(index: ImageIndex, batch: int) -> LoaderPlan:
    return plan_loader(index, 32, batch, LoaderOptions(cache="off"), RESOURCES)


@pytest.mark.medium
def test_waiting_consumer_gets_threads_and_the_same_batches(tmp_path: Path) -> None:
    index = ImageIndex.of(save_photos(tmp_path, 12) * 20)
    runs = {}
    for name, plan in (("tuned", plan_without_cache(index, 12)), ("fixed", LoaderOptions(threads=8))):
        loader = Loader(index, 32, 12, builder=TransformedSamples(sleep_20_ms), shuffle=True, options=plan)
        assert loader.plan.threads == 8
        runs[name] = [(batch.indices.tolist(), int(batch.images.numpy().sum())) for batch in loader]
        assert loader.plan.threads == (12 if name == "tuned" else 8)
        assert (loader.plan.why("threads") == "as requested") == (name == "fixed")
    assert runs["tuned"] == runs["fixed"]


@pytest.mark.medium
def test_slow_consumer_needs_fewer_threads(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 4) * 16
    loader = Loader(files, 32, 2, options=plan_without_cache(ImageIndex.of(files), 2))
    for attempt in range(10):  # on a busy machine even a slow consumer waits
        consumed = []
        for batch in loader:
            consumed += batch.indices.tolist()
            time.sleep(0.02 * 1.5**attempt)
        assert consumed == list(range(64))
        if loader.plan.threads < 8:
            break
    assert loader.plan.threads < 8
    assert loader.plan.why("threads").startswith("threads removed")
    assert loader.report().bottleneck is None
