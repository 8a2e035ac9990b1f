from __future__ import annotations

import time
from pathlib import Path

from oomph.data import Loader, TransformedSamples, prefetch_to_device
from oomph.data._prefetch import _Stopwatch

from .builders import sleep_20_ms
from .images import save_colors, save_photos


def test_batches_reach_the_device(tmp_path: Path) -> None:
    loader = Loader(save_photos(tmp_path, 5), 32, 2)
    moved = [(batch.indices.tolist(), batch.images.device.type) for batch in prefetch_to_device(loader, "cpu")]
    assert moved == [([0, 1], "cpu"), ([2, 3], "cpu"), ([4], "cpu")]


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
