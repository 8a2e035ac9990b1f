from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oomph.data import BatchReader, ImageIndex, StretchedSamples, decode
from oomph.errors import OomphError, UsageError
from oomph.units import MIB

from ..images import psnr, save_colors, save_photos, scene

BUDGET = 64 * MIB


def damage(path: str) -> None:
    """Zero the pixel data of a PNG whose header stays intact."""
    content = bytearray(Path(path).read_bytes())
    content[45:60] = bytes(15)
    Path(path).write_bytes(bytes(content))


def test_batches_come_in_any_order_and_from_any_thread(tmp_path: Path) -> None:
    reader = BatchReader(save_colors(tmp_path, 10), (20, 20), 4, BUDGET, shuffle=True, seed=3)
    in_order = [reader.read(1, number) for number in range(len(reader))]
    with ThreadPoolExecutor(3) as pool:
        backwards = list(pool.map(lambda number: reader.read(1, number), [2, 1, 0]))[::-1]
    for first, second in zip(in_order, backwards, strict=True):
        assert np.array_equal(first.indices, second.indices)
        assert np.array_equal(first.images, second.images)
    numbers = np.concatenate([batch.indices for batch in in_order])
    assert sorted(numbers) == list(range(10))
    assert [len(batch.indices) for batch in in_order] == [4, 4, 2]
    for batch in in_order:  # 10 gray levels per number
        assert batch.images[:, 0, 0, 0].tolist() == (10 * batch.indices).tolist()


def test_epochs_and_seeds_have_other_orders(tmp_path: Path) -> None:
    files = save_colors(tmp_path, 10)

    def order(seed: int, epoch: int) -> list[int]:
        return BatchReader(files, (20, 20), 10, BUDGET, shuffle=True, seed=seed).read(epoch, 0).indices.tolist()

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1) != order(1, 1)
    assert BatchReader(files, (20, 20), 10, BUDGET).read(5, 0).indices.tolist() == list(range(10))


def test_an_image_that_cannot_be_decoded_is_replaced_or_left_out_and_listed(tmp_path: Path) -> None:
    files = save_colors(tmp_path, 5)
    damage(files[1])
    replacing = BatchReader(files, (20, 20), 2, BUDGET)
    assert [replacing.read(0, number).indices.tolist() for number in range(3)] == [[0, 2], [2, 3], [4]]
    assert [item.path for item in replacing.skipped()] == [files[1]]
    dropping = BatchReader(files, (20, 20), 2, BUDGET, replace=False)
    assert [dropping.read(0, number).indices.tolist() for number in range(3)] == [[0], [2, 3], [4]]
    assert [item.path for item in dropping.skipped()] == [files[1]]


def test_if_no_image_can_be_decoded_the_error_says_why(tmp_path: Path) -> None:
    files = save_colors(tmp_path, 2)
    index = ImageIndex.of(files)
    for file in files:
        Path(file).unlink()
    with pytest.raises(OomphError, match="no image can be decoded; last reason: the file was deleted"):
        BatchReader(index, (20, 20), 2, BUDGET).read(0, 0)
    assert BatchReader(index, (20, 20), 2, BUDGET, replace=False).read(0, 0).images.shape == (0, 20, 20, 3)


def test_decoding_stays_within_the_budget(tmp_path: Path) -> None:
    files = [*save_photos(tmp_path, 4, 800, 600), str(tmp_path / "large.png")]
    Image.fromarray(scene(2500, 2000)).save(files[-1])
    reader = BatchReader(files, (64, 64), 2, 24 * MIB, threads=2)
    with ThreadPoolExecutor(2) as pool:
        batches = list(pool.map(lambda number: reader.read(0, number), range(len(reader))))
    assert sum(len(batch.indices) for batch in batches) == 4
    assert 0 < reader.peak <= 24 * MIB
    (skipped,) = reader.skipped()
    assert skipped.path == files[-1]
    assert "more than the budget" in skipped.reason
    with pytest.raises(UsageError, match="none of the 5 images can be used; first reason: decoding needs"):
        BatchReader(files, (64, 64), 2, MIB)


def test_stretched_samples_fill_the_canvas(tmp_path: Path) -> None:
    (file,) = save_photos(tmp_path, 1, 320, 120)
    (image,) = BatchReader([file], (64, 96), 1, BUDGET, builder=StretchedSamples()).read(0, 0).images
    expected = Image.open(file).resize((96, 64), Image.Resampling.BICUBIC)
    assert psnr(image, np.asarray(expected)) > 30
    assert np.array_equal(image, decode(file, (96, 64), stretch=True).pixels)


def test_it_imports_no_torch(tmp_path: Path) -> None:
    files = save_colors(tmp_path, 2)
    code = (
        "import sys; from oomph.data import BatchReader;"
        f"BatchReader({files!r}, (20, 20), 2, 1 << 26).read(0, 0); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
