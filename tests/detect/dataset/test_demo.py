from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from oomph.detect import DemoSize, draw_scene, read_dataset, read_split, shared_images, write_demo_dataset
from oomph.detect.dataset import DEMO_IMGSZ, DEMO_NAMES


@pytest.mark.medium
def test_demo_dataset_is_an_ordinary_dataset(tmp_path: Path) -> None:
    data = read_dataset(write_demo_dataset(tmp_path / "a b", DemoSize(train=24, val=6)))
    train, val = read_split(data, "train"), read_split(data, "val")
    assert data.names == DEMO_NAMES
    assert (len(train.images), len(val.images)) == (24, 6)
    assert shared_images(train, val) == 0
    assert not any(issue.broken for issue in train.issues)
    assert (train.labels.counts(len(DEMO_NAMES)) > 5).all()


def test_demo_dataset_is_deterministic_and_an_interrupted_write_is_completed(tmp_path: Path) -> None:
    size = DemoSize(train=3, val=1)

    def digest(folder: Path) -> str:
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

    write_demo_dataset(tmp_path / "one", size)
    write_demo_dataset(tmp_path / "two", DemoSize(train=2, val=0))
    write_demo_dataset(tmp_path / "two", size)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")


@pytest.mark.medium
def test_scenes_are_varied() -> None:
    scenes = [draw_scene((9, index)) for index in range(80)]
    counts = np.array([len(boxes) for _, boxes in scenes])
    boxes = np.concatenate([boxes for _, boxes in scenes])
    sides = boxes[:, 3:].max(1) * DEMO_IMGSZ
    assert counts.min() == 0
    assert counts.max() >= 5
    assert (sides < 16).mean() > 0.15
    assert (sides > 48).mean() > 0.15
    assert (np.bincount(boxes[:, 0].astype(int)) > 30).all()
    assert all(image.std() > 15 for image, _ in scenes)


def test_boxes_lie_inside_the_image() -> None:
    _, boxes = draw_scene((9, 1))
    low, high = boxes[:, 1:3] - boxes[:, 3:] / 2, boxes[:, 1:3] + boxes[:, 3:] / 2
    assert (low >= 0).all()
    assert (high <= 1).all()
