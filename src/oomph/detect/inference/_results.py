"""Predictions mapped from letterboxes and tiles to pixels of the original images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from ...data import Detections, Letterbox, Tile, merge_tiles
from ..dataset import BoxRows, IndexedSplit, fractions_to_pixels
from ..metrics import ImageResult


def letterbox_result(predictions: Tensor, letterbox: Letterbox, labels: BoxRows) -> ImageResult:
    """Map predictions of a letterboxed image, and its labels as fractions, to pixels of the original."""
    boxes = predictions.detach().float().cpu()
    width, height = letterbox.window.size
    corners = letterbox.to_image(boxes[:, :4].numpy()).clip(0, (width, height, width, height))
    rows = np.concatenate((corners, boxes[:, 4:].numpy()), 1).astype(np.float32)
    return ImageResult(rows, fractions_to_pixels(labels, (float(width), float(height)), (0.0, 0.0)))


def merge_tile_results(
    predictions: Mapping[int, Tensor], tiles: Mapping[int, Tile], split: IndexedSplit, *, agnostic: bool = False
) -> dict[int, ImageResult]:
    """Merge the predictions of tiles, keyed by sample, into results keyed by image; each object is kept once."""
    samples_by_image: dict[int, list[int]] = {}
    for sample in sorted(predictions):
        samples_by_image.setdefault(tiles[sample].index, []).append(sample)
    results = {}
    for image in sorted(samples_by_image):
        height, width = split.shapes[image]
        parts = [(tiles[sample].letterbox, _as_detections(predictions[sample])) for sample in samples_by_image[image]]
        merged = merge_tiles(parts, (width, height), across_classes=agnostic)
        rows = np.column_stack((merged.boxes, merged.scores, merged.classes)).astype(np.float32)
        truth = fractions_to_pixels(split.labels.of(image), (float(width), float(height)), (0.0, 0.0))
        results[image] = ImageResult(rows, truth)
    return results


def _as_detections(boxes: Tensor) -> Detections:
    rows = boxes.detach().double().cpu().numpy()
    return Detections(rows[:, :4], rows[:, 4], rows[:, 5].astype(np.int64))
