from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from oomph.data import Shard, Tiles
from oomph.detect import (
    ImageResult,
    IndexedSplit,
    LoadConfig,
    NmsConfig,
    index_split,
    read_dataset,
    read_split,
    run_unguarded,
    score,
    validate,
    validation_loader,
)
from tests.detect.red_squares import SQUARES, RedSquareDetector, indexed_split, write_red_squares

GRAY = 114
NMS = NmsConfig(conf_thres=0.5, iou_thres=0.9)
TILES = LoadConfig(256, 4)


@pytest.fixture(scope="module")
def val_split(tmp_path_factory: pytest.TempPathFactory) -> IndexedSplit:
    return indexed_split(write_red_squares(tmp_path_factory.mktemp("squares"), train=0, val=2), "val")


@pytest.mark.parametrize("shape", [(480, 640), (640, 480), (427, 640), (64, 64), (30, 40)])
def test_the_longer_side_becomes_the_image_size_and_the_rest_is_gray(tmp_path: Path, shape: tuple[int, int]) -> None:
    folder = tmp_path / "images" / "val"
    folder.mkdir(parents=True)
    Image.fromarray(np.full((*shape, 3), 200, np.uint8)).save(folder / "a.png")
    (tmp_path / "data.yaml").write_text("val: images/val\nnames: [a]\n")
    split = index_split(read_split(read_dataset(tmp_path / "data.yaml"), "val"))
    with validation_loader(split, LoadConfig(128, 2)) as loader:
        batch = next(iter(loader))
    drawn = np.argwhere(batch.images[0, 0].numpy() != GRAY)
    height, width = drawn.max(0) - drawn.min(0) + 1
    assert max(height, width) == 128
    assert height / width == pytest.approx(shape[0] / shape[1], rel=0.01)
    canvas = batch.images.shape[2:]
    assert max(canvas) == 160  # the next multiple of 32 that leaves half a stride
    center_error = np.abs(drawn.min(0) + drawn.max(0) + 1 - np.array(canvas))
    assert center_error.max() <= 1


@pytest.mark.medium
def test_merged_tiles_detect_the_same_as_whole_images(val_split: IndexedSplit) -> None:
    model = RedSquareDetector()
    with (
        validation_loader(val_split, LoadConfig(1024, 1)) as whole_loader,
        validation_loader(val_split, TILES, Tiles(256)) as tile_loader,
    ):
        whole = validate(model, val_split, whole_loader, run_unguarded, NMS)
        merged = validate(model, val_split, tile_loader, run_unguarded, NMS)
    assert len(whole) == len(merged) == 2
    for whole_result, result in zip(whole, merged, strict=True):
        assert len(whole_result.predictions) == len(result.predictions) == len(result.truth) == SQUARES
        boxes, truth = (rows[np.lexsort(rows[:, :2].round().T)] for rows in (result.predictions, result.truth[:, 1:]))
        assert np.abs(boxes[:, :4] - truth).max() < 0.01
        assert np.array_equal(whole_result.truth, result.truth)
    assert score(merged, ["square"]).map50_95 == pytest.approx(1, abs=1e-6)


class AlternatingClasses(RedSquareDetector):
    """Predicts another class in every second tile."""

    def __init__(self) -> None:
        super().__init__()
        self._tiles = 0

    def forward(self, images: Tensor) -> tuple[Tensor]:
        (rows,) = super().forward(images)
        predictions = torch.cat((rows, torch.zeros(len(images), 200, 1)), 2)
        for number in range(len(images)):
            if (self._tiles + number) % 2:
                predictions[number, :, 5:] = predictions[number, :, 5:].flip(1)
        self._tiles += len(images)
        return (predictions,)


@pytest.mark.medium
def test_agnostic_nms_also_merges_across_tiles(val_split: IndexedSplit) -> None:
    counts = []
    for agnostic in (True, False):
        with validation_loader(val_split, TILES, Tiles(256)) as loader:
            nms = NmsConfig(conf_thres=0.5, iou_thres=0.9, agnostic=agnostic)
            results = validate(AlternatingClasses(), val_split, loader, run_unguarded, nms)
            counts.append([len(result.predictions) for result in results])
    assert counts[0] == [SQUARES, SQUARES]
    assert min(counts[1]) > SQUARES


def test_each_rank_gets_all_tiles_of_its_images(val_split: IndexedSplit) -> None:
    by_rank: list[list[ImageResult]] = []
    for rank in range(2):
        with validation_loader(val_split, LoadConfig(256, 4, shard=Shard(rank, 2)), Tiles(256)) as loader:
            by_rank.append(validate(RedSquareDetector(), val_split, loader, run_unguarded, NMS))
    assert [len(results) for results in by_rank] == [1, 1]
    assert all(len(results[0].predictions) == SQUARES for results in by_rank)
