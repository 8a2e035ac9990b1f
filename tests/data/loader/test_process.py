from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oomph.data import Loader, LoaderOptions, TransformedSamples
from oomph.data.loader import _buffers
from oomph.data.loader._process import ProcessWorkers
from oomph.data.loader._sample_maker import PoolClosed
from oomph.errors import OomphError, UsageError
from oomph.units import MIB

from ..builders import KillingSamples, kill_on_3, sleep_20_ms
from ..images import save_colors, save_photos

pytestmark = pytest.mark.medium
FORKED = LoaderOptions(workers=1, start_method="fork")


def samples(loader: Loader) -> list[int]:
    return [index for batch in loader for index in batch.indices.tolist()]


def colors(loader: Loader) -> list[int]:
    return [int(image[0, 10, 10]) // 10 for batch in loader for image in batch.images]


def process_pool(loader: Loader) -> ProcessWorkers:
    assert isinstance(loader._pool, ProcessWorkers)
    return loader._pool


@pytest.fixture
def shm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use a private folder in /dev/shm, because other tests run at the same time."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setattr(_buffers, "_SHM", folder)
        yield Path(folder)


def test_script_without_a_main_guard_can_use_workers(tmp_path: Path) -> None:
    """Worker processes import neither the script nor torch."""
    Image.new("RGB", (64, 48)).save(tmp_path / "one.png")
    script = tmp_path / "script.py"
    script.write_text(
        "import psutil, torch\n"
        "from oomph.data import Loader\n"
        "print('once')\n"
        f"loader = Loader([{str(tmp_path / 'one.png')!r}] * 4, size=32, batch=2, workers=1)\n"
        "batches = iter(loader)\n"
        "print(next(batches).images.shape[0])\n"
        "maps = [map.path for map in psutil.Process().children()[0].memory_maps()]\n"
        "print(any('libtorch' in path for path in maps))\n"
        "loader.close()\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["once", "2", "False"]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_killed_workers_are_replaced_and_no_sample_is_lost(tmp_path: Path, start_method: str) -> None:
    options = LoaderOptions(workers=2, start_method=start_method)
    builder = TransformedSamples(sleep_20_ms)
    with Loader(save_photos(tmp_path, 16), 32, 2, builder=builder, options=options) as loader:
        consumed = []
        for number, batch in enumerate(loader):
            consumed += batch.indices.tolist()
            if number == 1:
                for pid in process_pool(loader).pids():
                    os.kill(pid, signal.SIGKILL)
        assert consumed == list(range(16))
        assert loader.skipped() == []


def test_sample_that_kills_its_workers_is_skipped(tmp_path: Path) -> None:
    with Loader(save_photos(tmp_path, 6), 32, 2, builder=TransformedSamples(kill_on_3), options=FORKED) as loader:
        assert samples(loader) == [0, 1, 2, 4, 4, 5]
        assert [skipped.reason for skipped in loader.skipped()] == ["it killed 2 worker processes (signal SIGKILL)"]


def test_killing_sample_costs_no_other_sample_of_its_chunk(tmp_path: Path) -> None:
    with Loader(save_colors(tmp_path, 6), 20, 6, builder=KillingSamples(), options=FORKED, on_error="drop") as loader:
        assert colors(loader) == [0, 1, 3, 4, 5]
        assert process_pool(loader).max_chunk == 16
        assert "killed" in loader.skipped()[0].reason


def test_damaged_image_costs_no_other_sample_of_its_chunk(tmp_path: Path) -> None:
    files = save_colors(tmp_path, 6)
    content = Path(files[2]).read_bytes()
    Path(files[2]).write_bytes(content[: len(content) // 2])
    with Loader(files, 20, 6, options=FORKED, on_error="drop") as loader:
        assert colors(loader) == [0, 1, 3, 4, 5]
        assert [skipped.path for skipped in loader.skipped()] == [files[2]]


def test_workers_wait_for_the_budget_if_the_size_of_samples_is_unknown(tmp_path: Path) -> None:
    options = LoaderOptions(workers=2, start_method="fork", budget=32 * MIB)
    with Loader(save_photos(tmp_path, 4), 32, 2, builder=TransformedSamples(sleep_20_ms), options=options) as loader:
        assert samples(loader) == [0, 1, 2, 3]
        assert process_pool(loader).max_chunk == 1
        assert 0 < loader.report().measured.decoding <= 32 * MIB


def test_close_ends_workers_and_removes_shared_memory(tmp_path: Path, shm: Path) -> None:
    options = LoaderOptions(workers=2, start_method="fork")
    loader = Loader(save_photos(tmp_path, 8), 32, 2, options=options)
    assert len(list(shm.iterdir())) == 1  # allocated before the first pass
    first = samples(loader)
    pids = process_pool(loader).pids()
    assert 1_000_000 < loader.report().measured.workers < loader.plan.memory.workers
    loader.close()
    assert not list(shm.iterdir())
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert samples(loader) == first  # a closed loader can be used again
    assert len(list(shm.iterdir())) == 1
    del loader
    gc.collect()
    assert not list(shm.iterdir())


@pytest.mark.parametrize("start_method", ["spawn", "fork"])
def test_memory_of_workers_is_known_after_close(tmp_path: Path, start_method: str) -> None:
    options = LoaderOptions(workers=2, start_method=start_method)
    with Loader(save_colors(tmp_path, 8), 20, 2, options=options) as loader:
        assert len(list(loader)) == 4
    assert loader.report().measured.workers > MIB


def test_dismissed_worker_is_not_started_again(tmp_path: Path) -> None:
    with Loader(save_colors(tmp_path, 2), 20, 1, options=FORKED) as loader:
        assert colors(loader) == [0, 1]
        worker = process_pool(loader).workers[0]
    with pytest.raises(PoolClosed):
        worker.make_samples([0], 0, np.empty((1, 20, 20, 3), np.uint8))
    assert worker.pid is None


def test_builder_that_cannot_be_pickled_is_rejected(tmp_path: Path) -> None:
    builder = TransformedSamples(lambda image, index, rng: image)
    loader = Loader(save_photos(tmp_path, 2), 32, 1, builder=builder, options=LoaderOptions(workers=1))
    with loader, pytest.raises(UsageError, match="can't be sent to a worker process"):
        list(loader)


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_disk_replaces_a_full_dev_shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_buffers, "_SHM", "/proc")  # no file can be created there
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Loader(save_photos(tmp_path, 4), 32, 2, options=FORKED) as loader:
        assert samples(loader) == [0, 1, 2, 3]
        assert len(list(tmp_path.glob("oomph-*"))) == 1
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(OomphError, match="more than /dev/shm and the temporary folder have"):
        Loader(save_photos(tmp_path, 4), 32, 2, options=FORKED)
