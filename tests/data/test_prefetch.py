from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from oomph.data import Batch, Loader, TransformedSamples, prefetch_to_device
from oomph.data._prefetch import _Prefetcher, _Stopwatch

from .builders import fail_on_5, sleep_20_ms
from .images import save_colors, save_photos

CPU = torch.device("cpu")


def test_batches_reach_the_device(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 5), 32, 2)
    moved = [(batch.indices.tolist(), batch.images.device.type) for batch in prefetch_to_device(loader, "cpu")]
    assert moved == [([0, 1], "cpu"), ([2, 3], "cpu"), ([4], "cpu")]


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the CUDA calls of the prefetcher, so that it runs on the CPU."""

    class Event:
        def record(self) -> None:
            pass

        def query(self) -> bool:
            return True

    class Stream:
        def __init__(self, device: torch.device) -> None:
            del device

        def wait_event(self, event: Event) -> None:
            assert isinstance(event, Event)

    for name, fake in (("Event", Event), ("Stream", Stream), ("current_stream", Stream)):
        monkeypatch.setattr(torch.cuda, name, fake)
    for name in ("device", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda _: nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)


def prefetch(loader: Loader) -> Iterator[Batch]:
    return iter(_Prefetcher(loader.batches(), CPU))


@pytest.mark.usefixtures("fake_cuda")
def test_prefetcher_keeps_the_order_and_ends_its_thread(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 7), 32, 2, threads=2)
    assert [batch.indices.tolist() for batch in prefetch(loader)] == [[0, 1], [2, 3], [4, 5], [6]]
    unfinished = prefetch(loader)
    next(unfinished)
    del unfinished
    assert not any(thread.name == "oomph-prefetch" for thread in threading.enumerate())


@pytest.mark.usefixtures("fake_cuda")
def test_prefetcher_raises_errors_in_the_consumer(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 9), 32, 2, builder=TransformedSamples(fail_on_5), threads=2)
    consumed: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        consumed.extend(batch.indices.tolist() for batch in prefetch(loader))
    assert consumed == [[0, 1], [2, 3]]


@pytest.mark.usefixtures("fake_cuda")
def test_batch_without_free_gpu_memory_stays_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(save_photos(tmp_path, 3), 32, 1, threads=1)

    def out_of_memory(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.Tensor, "to", out_of_memory)
    assert [batch.images.device.type for batch in prefetch(loader)] == ["cpu", "cpu", "cpu"]


def test_waiting_is_measured_by_the_clock_of_the_consumer(tmp_path: Path) -> None:
    builder = TransformedSamples(sleep_20_ms)
    with Loader(save_colors(tmp_path, 4), 20, 1, builder=builder, threads=1) as loader:
        assert len(list(loader.batches(clock=lambda: 7.0))) == 4
        assert loader.waited == 0
        assert len(list(loader.batches())) == 4
        assert loader.waited > 0.02


def test_stopwatch_runs_only_inside_its_block() -> None:
    stopwatch = _Stopwatch()
    time.sleep(0.02)
    assert stopwatch() == 0
    with stopwatch:
        time.sleep(0.02)
        assert 0.02 <= (running := stopwatch()) < 2
    assert running <= (stopped := stopwatch())
    time.sleep(0.01)
    assert stopwatch() == stopped
