"""Worker processes that are asked for several samples at once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from oomph.data import Loader
from oomph.data.loader._admission import Admission
from oomph.data.loader._recipe import Whole


class Deadly(Whole):
    """Kills the process that makes the sample of an image."""

    images = 1

    def build(self, pieces: Any, canvas: Any, rng: Any) -> Any:
        if pieces[0].want.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().build(pieces, canvas, rng)


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
    with Loader(files, 20, 6, workers=1, broken="drop") as loader:
        assert colours(loader) == [0, 1, 3, 4, 5]
        assert [one.path for one in loader.aside()] == [files[2]]


def test_a_sample_that_kills_its_worker_costs_no_other(tmp_path: Path) -> None:
    files = pictures(tmp_path, 6)
    with Loader(files, 20, 6, recipe=Deadly(), workers=1, broken="drop") as loader:
        assert colours(loader) == [0, 1, 3, 4, 5]
        assert "died" in loader.aside()[0].reason


def test_several_are_asked_for_only_where_all_workers_fit_side_by_side(tmp_path: Path) -> None:
    files = pictures(tmp_path, 8)
    with Loader(files, 20, 8, workers=2) as loader:
        for admitted, most in ((1 << 40, 4), (1, 1)):
            loader._admitted = admitted
            hands = loader._hands(Admission(1 << 20), loader._crewed().workers)
            assert [hand.most for hand in hands] == [most, most]


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
