from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oomph.detect import prepare, read_dataset, read_split, validation_loader

GREY = 114


@pytest.mark.parametrize("shape", [(480, 640), (640, 480), (427, 640), (64, 64), (30, 40)])
def test_the_longer_side_is_the_size_that_was_asked_for_and_the_rest_of_the_frame_is_grey(
    tmp_path: Path, shape: tuple[int, int]
) -> None:
    for split in ("train", "val"):
        folder = tmp_path / "images" / split
        folder.mkdir(parents=True)
        Image.fromarray(np.full((*shape, 3), 200, np.uint8)).save(folder / "a.png")
    (tmp_path / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [a]\n")
    material = prepare(read_split(read_dataset(tmp_path / "data.yaml"), "val"))
    with validation_loader(material, 128, 2) as loader:
        batch = next(iter(loader))
    shown = np.argwhere(batch.images[0, 0].numpy() != GREY)
    tall, wide = shown.max(0) - shown.min(0) + 1
    assert max(tall, wide) == 128
    assert tall / wide == pytest.approx(shape[0] / shape[1], rel=0.01)
    frame = batch.images.shape[2:]
    assert max(frame) == 160  # the next multiple of 32 with half a stride to spare
    edges = shown.min(0) + shown.max(0) + 1
    assert np.abs(edges - np.array(frame)).max() <= 1  # in the middle
