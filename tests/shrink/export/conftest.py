"""A dataset and weights that all formats export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from oomph.detect import DemoSize, save_weights, write_demo_dataset, yolov5
from oomph.shrink._images import sample_images
from tests.shrink.export.commands import NAMES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, and weights whose outputs vary as those of a trained network do."""
    folder = tmp_path_factory.mktemp("shrink")
    data = write_demo_dataset(folder / "data", DemoSize(train=8, val=6))
    torch.manual_seed(0)
    model = yolov5("n", 4)
    images = torch.from_numpy(sample_images(data, "train", 64, 8))
    with torch.no_grad():
        for _ in range(20):
            model(images)  # BatchNorm's statistics
        features = model.eval().features(images)
        for layer, feature in zip(model.head.m, features, strict=True):
            assert isinstance(layer, nn.Conv2d)
            assert layer.bias is not None
            layer.bias.zero_()
            layer.weight *= 3 / layer(feature).std()
    save_weights(folder / "n.pt", model, NAMES)
    return folder


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
