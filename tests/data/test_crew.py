"""Worker processes that are asked for several samples at once."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oomph.data import HostResources, ImageIndex, Loader, LoaderOptions, Transform, plan_loader
from oomph.data._device import _Stopwatch
from oomph.data.loader._admission import Admission, Closed
from oomph.data.loader._gauge import Gauge
from oomph.data.loader._recipe import LetterboxSamples
from oomph.data.loader._run import lot_of
from oomph.units import GIB, MIB

from .recipes import darken, sleepy

ROOM = HostResources(memory=16 * GIB, bound="RAM", shm=8 * GIB, cores=12, gpu=False)


class Deadly(LetterboxSamples):
    """Kills the process that makes the sample of an image."""

    images = 1

    def build(self, pieces: Any, canvas: Any, rng: Any) -> Any:
        if pieces[0].want.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().build(pieces, canvas, rng)


class Sleepy(LetterboxSamples):
    """Takes a while; the target is the process."""

    images = 1

    def build(self, pieces: Any, canvas: Any, rng: Any) -> Any:
        super().build(pieces, canvas, rng)
        time.sleep(0.01)
        return os.getpid()


def pictures(folder: Path, count: int) -> list[str]:
    for number in range(count):
        Image.fromarray(np.full((20, 20, 3), 10 * number, np.uint8)).save(folder / f"{number}.png")
    return [str(folder / f"{number}.png") for number in range(count)]


def colours(loader: Loader) -> list[int]:
    return [int(image[0, 10, 10]) // 10 for batch in loader for image in batch.images]


def test_a_broken_image_among_several_is_set_aside_alone(tmp_path: Path) -> None:
    files = pictures(tmp_path, 6)
    whole = Path(files[2]).read_bytes()
    Path(files[2]).write_bytes(whole[: len(whole) // 2])
    with Loader(files, 20, 6, workers=1, on_error="drop") as loader:
        assert colours(loader) == [0, 1, 3, 4, 5]
        assert [one.path for one in loader.skipped()] == [files[2]]


def test_a_sample_that_kills_its_worker_costs_no_other(tmp_path: Path) -> None:
    files = pictures(tmp_path, 6)
    with Loader(files, 20, 6, builder=Deadly(), workers=1, on_error="drop") as loader:
        assert colours(loader) == [0, 1, 3, 4, 5]
        assert "died" in loader.skipped()[0].reason


def test_several_are_asked_for_only_where_all_workers_fit_side_by_side(tmp_path: Path) -> None:
    files = pictures(tmp_path, 8)
    with Loader(files, 20, 8, workers=2) as loader:
        for admitted, most in ((1 << 40, 16), (1, 1)):
            loader._admitted = admitted
            hands = loader._hands(Admission(1 << 20), loader._crewed().workers)
            assert [hand.most for hand in hands] == [most, most]


@pytest.mark.parametrize(
    ("batch", "ahead", "workers", "most"),
    [(64, 4, 10, 16), (64, 4, 14, 11), (8, 2, 2, 4), (2, 2, 2, 1), (1, 4, 1, 1), (100, 4, 3, 15), (5, 1, 32, 1)],
)
def test_a_lot_leaves_work_for_all_workers_and_lots_are_alike(batch: int, ahead: int, workers: int, most: int) -> None:
    assert lot_of(batch, ahead, workers, 16) == most
    assert lot_of(batch, ahead, workers, 1) == 1
    lots = -(-batch // most)
    assert lots * ahead >= workers or most == 1
    assert most * lots - batch < lots


def test_workers_that_are_added_in_the_middle_of_a_pass_have_work(tmp_path: Path) -> None:
    index = ImageIndex.of(pictures(tmp_path, 8) * 16)
    plan = plan_loader(
        index, 20, 8, LoaderOptions(workers=4, start="fork", prefetch=2), dataclasses.replace(ROOM, cores=1)
    )
    assert (plan.threads, plan.most) == (1, 4)  # lots of a whole batch, one hand
    with Loader(index, 20, 8, builder=Sleepy(), options=plan) as loader:
        used = [set(batch.targets) for batch in loader]
    assert [len(one) for one in used[:2]] == [1, 1]
    assert len(set.union(*used[-4:])) == 4  # the processes that made them


def test_a_pass_that_two_threads_close_is_over_for_both(tmp_path: Path) -> None:
    files = pictures(tmp_path, 8) * 8
    with Loader(files, 20, 4, builder=Sleepy(), options=LoaderOptions(workers=2, start="fork")) as loader:
        for _ in range(4):
            batches = iter(loader)
            next(batches)
            run = loader._run
            assert run is not None
            other = threading.Thread(target=run.close)
            other.start()
            assert len(list(loader)) == 16  # the next pass drives the same processes
            other.join()
            assert not any(thread.is_alive() for thread in run._threads)


def test_a_worker_that_was_dismissed_is_not_started_again(tmp_path: Path) -> None:
    with Loader(pictures(tmp_path, 2), 20, 1, workers=1) as loader:
        assert colours(loader) == [0, 1]
        assert loader._crew is not None
        worker = loader._crew.workers[0]
    with pytest.raises(Closed):
        worker.ask(0, 0, np.empty((20, 20, 3), np.uint8))
    assert worker.pid is None


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_what_workers_held_is_known_when_they_are_gone(tmp_path: Path, start: str) -> None:
    with Loader(pictures(tmp_path, 8), 20, 2, options=LoaderOptions(workers=2, start=start)) as loader:
        assert len(list(loader)) == 4
    assert loader.report().measured.workers > MIB


@pytest.mark.parametrize("start", ["spawn", "fork"])
@pytest.mark.parametrize(("seconds", "fewest", "most"), [(0.0, 4, 4), (0.05, 1, 2)])
def test_as_many_workers_are_at_work_as_the_consumer_needs(
    tmp_path: Path, start: str, seconds: float, fewest: int, most: int
) -> None:
    index = ImageIndex.of(pictures(tmp_path, 8) * 10)
    plan = plan_loader(index, 20, 4, LoaderOptions(workers=4, start=start), dataclasses.replace(ROOM, cores=4))
    assert (plan.workers, plan.threads, plan.most) == (4, 3, 4)
    builder = Transform(sleepy if not seconds else darken)
    with Loader(index, 20, 4, builder=builder, options=plan) as loader:
        for _ in range(5):  # on a machine that is busy with other tests even a slow consumer waits at first
            for _ in loader:
                time.sleep(seconds)
            if fewest <= loader.plan.threads <= most:
                break
        assert fewest <= loader.plan.threads <= most
        assert len(loader._pids()) == 4


def test_a_number_of_workers_at_work_that_is_asked_for_is_kept(tmp_path: Path) -> None:
    index = ImageIndex.of(pictures(tmp_path, 2) * 40)
    plan = plan_loader(index, 20, 2, LoaderOptions(workers=4, threads=2), ROOM)
    assert (plan.workers, plan.threads, plan.most) == (4, 2, 2)
    with Loader(index, 20, 2, builder=Transform(sleepy), options=plan) as loader:
        for _ in loader:
            pass
        assert (loader.plan.threads, loader.plan.why("threads")) == (2, "as asked")


def test_what_a_worker_shares_is_not_counted_as_its_own(tmp_path: Path) -> None:
    size = 64 * MIB
    (tmp_path / "shared").write_bytes(bytes(size))
    code = (
        "import mmap, sys\n"
        "with open(sys.argv[1], 'r+b') as file: shared = mmap.mmap(file.fileno(), 0)\n"
        "own = b'1' * int(sys.argv[2]); seen = sum(shared[:: 4096]); print('ready', flush=True); input()"
    )
    own = 16 * MIB
    command = [sys.executable, "-c", code, str(tmp_path / "shared"), str(own)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        gauge = Gauge()
        gauge.look([child.pid])
        child.kill()
    assert own < gauge.workers < own + size / 2


def test_waiting_is_measured_by_the_clock_of_whoever_needs_the_batch(tmp_path: Path) -> None:
    files = pictures(tmp_path, 4)
    with Loader(files, 20, 1, builder=Transform(sleepy), threads=1) as loader:
        assert len(list(loader.ahead(lambda: 7.0, pin=False))) == 4
        assert loader.waited == 0
        assert len(list(loader.ahead(time.perf_counter, pin=False))) == 4
        assert loader.waited > 0.02


def test_a_stopwatch_runs_only_while_it_is_started() -> None:
    watch = _Stopwatch()
    time.sleep(0.02)
    assert watch() == 0
    with watch:
        time.sleep(0.02)
        assert 0.02 <= (under_way := watch()) < 2
    assert under_way <= (ended := watch())
    time.sleep(0.01)
    assert watch() == ended


def test_a_consumer_that_is_behind_says_where_it_is(tmp_path: Path) -> None:
    files = pictures(tmp_path, 6)
    with Loader(files, 20, 1, threads=1) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict((0, 2))  # two of the four are still on their way
    with Loader(files, 20, 1, threads=1) as other:
        other.load_state_dict(state)
        assert colours(other) == [2, 3, 4, 5]
