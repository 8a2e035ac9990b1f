from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from oomph.data import Loader, Tiles
from oomph.detect import Augmentation, IndexedSplit, LabelTable, LoadConfig, tiling
from oomph.detect.dataset import suggest_tiles, tile_train_loader
from oomph.errors import UsageError
from tests.detect.red_squares import indexed_split, write_red_squares

NO_COLOR = Augmentation(mosaic=0, hsv_h=0, hsv_s=0, hsv_v=0, scale=0.4, fliplr=0.5, flipud=0.5)


@pytest.fixture(scope="module")
def train_split(tmp_path_factory: pytest.TempPathFactory) -> IndexedSplit:
    return indexed_split(write_red_squares(tmp_path_factory.mktemp("squares"), train=3, val=0), "train")


def train_loader(split: IndexedSplit, threads: int) -> Loader:
    return tile_train_loader(split, Tiles(160), NO_COLOR, LoadConfig(160, 8, threads=threads))


@pytest.mark.medium
def test_boxes_of_training_tiles_lie_on_their_objects(train_split: IndexedSplit) -> None:
    with train_loader(train_split, threads=2) as loader:
        batches = list(loader)
    images = torch.cat([batch.images for batch in batches])
    assert len(images) == 3 * 40  # 35 tiles cover an image, and 8 are cut from one decode
    boxes = tiles_without_boxes = 0
    for batch in batches:
        for number, image in enumerate(batch.images):
            rows = batch.targets[batch.targets[:, 0] == number].numpy()
            red = np.asarray((image[0] > 180) & (image[1] < 90))
            tiles_without_boxes += not len(rows)
            for _, _, x, y, wide, high in rows:
                left, right = round(float(x - wide / 2) * 160), round(float(x + wide / 2) * 160)
                top, bottom = round(float(y - high / 2) * 160), round(float(y + high / 2) * 160)
                assert red[top + 2 : bottom - 2, left + 2 : right - 2].all()
                boxes += 1
                red[max(top - 2, 0) : bottom + 2, max(left - 2, 0) : right + 2] = False
            assert red.sum() < 250  # the rest are objects of which less than a third is visible
    assert boxes > 150
    assert tiles_without_boxes > 2


@pytest.mark.medium
def test_training_tiles_resume_in_the_middle_of_an_epoch(train_split: IndexedSplit) -> None:
    def checksums(batches: Any) -> list[int]:
        return [int(batch.images.long().sum()) for batch in batches]

    with train_loader(train_split, threads=1) as loader, train_loader(train_split, threads=1) as resumed:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = checksums(batches)
        resumed.load_state_dict(state)
        assert checksums(resumed) == rest
        assert checksums(loader)[1:] != rest  # the next epoch has other tiles


@pytest.mark.parametrize(("imgsz", "suggested"), [(640, True), (64, True), (4000, True), (16_000, False)])
def test_tiles_are_suggested_for_small_objects(train_split: IndexedSplit, imgsz: int, *, suggested: bool) -> None:
    side, objects = 20_000, 30
    boxes = train_split.labels.boxes.copy()
    boxes[:, 3:] = objects / side
    labels = LabelTable(boxes, train_split.labels.starts)
    large = replace(train_split, labels=labels, shapes=((side, side),) * len(train_split.shapes))
    assert (suggest_tiles(large, imgsz) is not None) == suggested == (objects * imgsz / side < 8)
    assert suggest_tiles(train_split, 640) is None


def test_tiling_of_a_setting() -> None:
    assert tiling(False, 640) is None
    assert tiling(0, 640) is None
    assert tiling(True, 640) == Tiles(640)
    assert tiling(256, 640) == Tiles(256)
    with pytest.raises(UsageError, match="tiles of 16 pixels are too small"):
        tiling(16, 640)
