"""Images of a split as the network sees them: for measuring and for calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data import Loader
from ..detect import index_split, read_dataset, read_split
from ..errors import UsageError


def sample_images(data: Path, split: str, imgsz: int, count: int) -> NDArray[np.uint8]:
    """Return up to `count` images (n, 3, imgsz, imgsz), letterboxed, spread evenly over a split.

    Raises:
        MissingFile: a folder or list of the split doesn't exist.
        UsageError: the yaml doesn't name the split, or it has no usable images.
    """
    index = index_split(read_split(read_dataset(data), split)).index
    numbers = np.linspace(0, len(index) - 1, min(count, len(index))).round().astype(np.int64)
    with Loader(index.select(numbers), imgsz, 1, on_error="drop") as loader:
        images = [batch.images.numpy().copy() for batch in loader]
        if not images:
            reason = loader.skipped()[0].reason
            raise UsageError(f"no {split} image of {data} can be decoded ({reason})", "check the images")
    return np.concatenate(images)
