"""Pictures of a run: training samples with their labels, validation images with what was found in them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data import ImageIndex
from ..dataset._pixels import Pixels
from ..metrics._scores import ImageResult
from ..model._nms import keep_by_blocks
from ._drawing import captioned, draw_boxes, labelled_boxes, sheet
from ._thumbnails import with_labels

_SHOWN = 9
_PAIRS = 8
_CELL = 256  # pixels of a side: the sheet is written whenever a run gets better
_SURE = 0.25  # of a box that is shown
_OVERLAP = 0.45  # of two boxes of a class that are both shown


def training_sheet(images: Tensor, targets: Tensor, names: Sequence[str]) -> Pixels:
    """The first samples of a batch with their boxes, to be looked at."""
    drawn = []
    for at, image in enumerate(images[:_SHOWN].cpu()):
        pixels = image.permute(1, 2, 0).numpy()
        rows = targets[targets[:, 0] == at][:, 1:].numpy()
        drawn.append(draw_boxes(pixels, labelled_boxes(rows, *pixels.shape[:2]), names))
    return sheet(drawn)


def found_sheet(index: ImageIndex, results: Mapping[int, ImageResult], names: Sequence[str]) -> Pixels:
    """The first images with their labels and what was found; the results are by the numbers of the images."""
    drawn = []
    for at, result in itertools.islice(results.items(), _PAIRS):
        drawn.append(with_labels(index.path(at), index[at], replace(result, found=_clear(result.found)), names))
    words = f"pairs of the same image: its labels on the left, what was found (confidence from {_SURE}) on the right"
    return captioned(sheet(drawn, cell=_CELL, across=2), words)


def _clear(found: NDArray[np.float32]) -> NDArray[np.float32]:
    """The boxes that a user of the detector would see: scoring keeps many more, unsure ones and near doubles."""
    rows = torch.from_numpy(found[found[:, 4] >= _SURE])
    kept = keep_by_blocks(rows[:, :4], rows[:, 5], _OVERLAP, len(rows))
    clear: NDArray[np.float32] = rows[kept].numpy()
    return clear
