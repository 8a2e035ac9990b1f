from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from oomph.detect import EmbeddedSize, read_dataset, read_split, shared_images, write_embedded
from oomph.detect.dataset._demo import NAMES, SIDE, draw_scene


def test_the_data_set_is_an_ordinary_one(tmp_path: Path) -> None:
    data = read_dataset(write_embedded(tmp_path / "a b", EmbeddedSize(train=24, val=6)))
    train, val = read_split(data, "train"), read_split(data, "val")
    assert data.names == NAMES
    assert (len(train.images), len(val.images)) == (24, 6)
    assert shared_images(train, val) == 0
    assert not any(one.broken for one in train.set_aside)
    assert (train.labels.counts(len(NAMES)) > 5).all()


def test_it_is_the_same_every_time_and_an_interrupted_one_is_finished(tmp_path: Path) -> None:
    size = EmbeddedSize(train=3, val=1)

    def digest(folder: Path) -> str:
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    write_embedded(tmp_path / "one", size)
    write_embedded(tmp_path / "two", EmbeddedSize(train=2, val=0))
    write_embedded(tmp_path / "two", size)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


def test_scenes_are_not_trivial() -> None:
    scenes = [draw_scene((9, index)) for index in range(80)]
    counts = np.array([len(boxes) for _, boxes in scenes])
    boxes = np.concatenate([boxes for _, boxes in scenes])
    sides = boxes[:, 3:].max(1) * SIDE
    assert counts.min() == 0  # images with nothing to find
    assert counts.max() >= 5
    assert (sides < 16).mean() > 0.15
    assert (sides > 48).mean() > 0.15
    assert (np.bincount(boxes[:, 0].astype(int)) > 30).all()
    assert all(image.std() > 15 for image, _ in scenes)


def test_a_box_holds_its_shape_tightly() -> None:
    _, boxes = draw_scene((9, 1))
    low, high = boxes[:, 1:3] - boxes[:, 3:] / 2, boxes[:, 1:3] + boxes[:, 3:] / 2
    assert (low >= 0).all()
    assert (high <= 1).all()
