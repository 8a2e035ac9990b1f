"""Grids of images: training samples with their labels, validation images with labels and predictions."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from ...charts import font
from ...data import ImageIndex
from ..dataset import Pixels, gray_canvas, scale_into
from ..metrics import ImageResult
from ..model import nms_indices
from ._drawing import draw_boxes, label_boxes
from ._thumbnails import labels_and_predictions

_MAX_TRAIN_IMAGES = 9
_MAX_VAL_IMAGES = 8
_VAL_CELL = 256  # pixels; small, because the grid is written whenever a run improves
_MIN_CONFIDENCE = 0.25  # of boxes in the grid
_MAX_IOU = 0.45  # of two boxes of a class in the grid


def image_grid(images: Sequence[Pixels], cell: int = 320, max_images: int = 16, cell_aspect: int = 1) -> Pixels:
    """Arrange images in a grid, each scaled to fit a cell of height `cell` and width `cell * cell_aspect`."""
    shown = images[:max_images]
    cell_width = cell * cell_aspect
    columns = max(math.ceil(math.sqrt(len(shown) / cell_aspect)), 1)
    rows = max(math.ceil(len(shown) / columns), 1)
    canvas = gray_canvas(rows * cell, columns * cell_width)
    for index, image in enumerate(shown):
        ratio = min(cell / image.shape[0], cell_width / image.shape[1])
        part = canvas[index // columns * cell : (index // columns + 1) * cell]
        part = part[:, index % columns * cell_width : (index % columns + 1) * cell_width]
        shift = ((cell_width - image.shape[1] * ratio) / 2, (cell - image.shape[0] * ratio) / 2)
        scale_into(part, image, (ratio, ratio), shift)
    return canvas


def image_png(image: Pixels) -> bytes:
    """Encode an image as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def training_grid(images: Tensor, targets: Tensor, names: Sequence[str]) -> Pixels:
    """Draw the first samples of a batch with their boxes."""
    drawn = []
    for index, image in enumerate(images[:_MAX_TRAIN_IMAGES].cpu()):
        pixels = image.permute(1, 2, 0).numpy()
        rows = targets[targets[:, 0] == index][:, 1:].numpy()
        drawn.append(draw_boxes(pixels, label_boxes(rows, *pixels.shape[:2]), names))
    return image_grid(drawn)


def prediction_grid(index: ImageIndex, results: Mapping[int, ImageResult], names: Sequence[str]) -> Pixels:
    """Draw the first images of `results`, which are keyed by image number: labels left, predictions right."""
    pairs = []
    for number, result in itertools.islice(results.items(), _MAX_VAL_IMAGES):
        shown = replace(result, predictions=_confident_boxes(result.predictions))
        pairs.append(labels_and_predictions(index.path(number), index[number], shown, names))
    caption = f"labels on the left, predictions (confidence from {_MIN_CONFIDENCE}) on the right"
    return with_caption(image_grid(pairs, cell=_VAL_CELL, cell_aspect=2), caption)


def with_caption(image: Pixels, text: str) -> Pixels:
    """Add a line of text above an image."""
    strip = Image.new("RGB", (image.shape[1], 26), (255, 255, 255))
    ImageDraw.Draw(strip).text((8, 5), text, fill=(40, 40, 40), font=font(14))
    return np.concatenate((np.asarray(strip), image))


def _confident_boxes(predictions: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the boxes that `oomph detect` would show; scoring keeps many more, uncertain and overlapping ones."""
    rows = torch.from_numpy(predictions[predictions[:, 4] >= _MIN_CONFIDENCE])
    kept = nms_indices(rows[:, :4], rows[:, 5], _MAX_IOU, len(rows))
    boxes: NDArray[np.float32] = rows[kept].numpy()
    return boxes
