from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from oomph.data import Loader, LoaderOptions
from oomph.detect import Augmentation, DemoSize, index_split, read_dataset, read_split, write_demo_dataset
from oomph.detect.dataset import MosaicSamples, collate_boxes


def test_rows_start_with_the_number_of_their_sample() -> None:
    boxes = [np.ones((2, 5), np.float32), np.zeros((0, 5), np.float32), np.full((1, 5), 2, np.float32)]
    rows = collate_boxes(boxes)
    assert torch.equal(rows, torch.tensor([[0.0] + [1.0] * 5, [0.0] + [1.0] * 5, [2.0] + [2.0] * 5]))
    assert collate_boxes([np.zeros((0, 5), np.float32)]).shape == (0, 6)


@pytest.mark.medium
def test_threads_and_worker_processes_build_the_same_mosaics(tmp_path: Path) -> None:
    data = write_demo_dataset(tmp_path, DemoSize(train=8, val=0))
    split = index_split(read_split(read_dataset(data), "train"))

    def load(options: LoaderOptions) -> list[tuple[Tensor, Tensor]]:
        samples = MosaicSamples(split.labels, Augmentation(mixup=0.5))
        with Loader(
            split.index, 64, 4, builder=samples, collate=collate_boxes, shuffle=True, seed=3, options=options
        ) as loader:
            return [(batch.images.clone(), batch.targets) for batch in loader]

    by_threads, by_processes = load(LoaderOptions(threads=1)), load(LoaderOptions(workers=1))
    assert len(by_threads) == len(by_processes) == 2
    for (images, targets), (other_images, other_targets) in zip(by_threads, by_processes, strict=True):
        assert torch.equal(images, other_images)
        assert torch.equal(targets, other_targets)
