"""Precision, recall and F1 of each class against the confidence threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._image_result import ImageResult
from ._matching import match_pairs, overlapping_pairs

_MIN_IOU = 0.5
_CONFIDENCE_POINTS = 501  # of each curve, from 0 to 1
_FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ConfidenceCurves:
    """Curves at IoU 0.5 of the classes that have boxes.

    Attributes:
        confidences: (points,): thresholds from 0 to 1.
        classes: the class numbers.
        precision, recall: (classes, points): of the boxes that are at least as confident as the threshold.
    """

    confidences: _FloatArray
    classes: tuple[int, ...]
    precision: _FloatArray
    recall: _FloatArray

    @property
    def f1(self) -> _FloatArray:
        """Harmonic mean of precision and recall; 0 where both are 0."""
        total = self.precision + self.recall
        return np.divide(2 * self.precision * self.recall, total, out=np.zeros_like(total), where=total > 0)


def confidence_curves(results: Sequence[ImageResult], class_count: int) -> ConfidenceCurves:
    """Compute precision and recall at every threshold.

    Above the highest confidence of a class, its precision is 1 and its recall 0, as in YOLOv5.
    """
    confidences = np.linspace(0, 1, _CONFIDENCE_POINTS)
    predictions = np.concatenate([result.predictions for result in results] or [np.zeros((0, 6), np.float32)])
    is_correct = np.concatenate([correct_predictions(result) for result in results] or [np.zeros(0, np.bool_)])
    labels = np.concatenate([result.truth[:, 0] for result in results] or [np.zeros(0, np.float32)])
    counts = np.bincount(labels.astype(np.int64), minlength=class_count)
    classes = tuple(int(label) for label in np.flatnonzero(counts[:class_count]))
    curves = np.zeros((2, len(classes), _CONFIDENCE_POINTS))
    for number, label in enumerate(classes):
        of_class = predictions[:, 5] == label
        correct, scores = is_correct[of_class], predictions[of_class, 4].astype(np.float64)
        curves[:, number] = _class_curves(correct, scores, int(counts[label]), confidences)
    return ConfidenceCurves(confidences, classes, curves[0], curves[1])


def correct_predictions(result: ImageResult) -> NDArray[np.bool_]:
    """Return which predictions of an image match a box of their class at IoU 0.5, by the COCO definition.

    The most confident prediction chooses first, and takes the box that it overlaps most.
    """
    predictions, truth = result.predictions, result.truth
    rows, columns, overlaps = overlapping_pairs(predictions[:, :4], truth[:, 1:], _MIN_IOU)
    same_class = predictions[rows, 5] == truth[columns, 0]
    rows, columns, overlaps = rows[same_class], columns[same_class], overlaps[same_class]
    order = np.lexsort((-overlaps, rows, -predictions[rows, 4]))  # the last key is the most important
    correct = np.zeros(len(predictions), np.bool_)
    correct[[row for row, _ in match_pairs(rows[order], columns[order])]] = True
    return correct


def _class_curves(
    correct: NDArray[np.bool_], scores: _FloatArray, boxes: int, confidences: _FloatArray
) -> tuple[_FloatArray, _FloatArray]:
    """Return precision and recall of a class at each threshold."""
    order = np.argsort(-scores, kind="stable")
    hits = np.concatenate(([0], np.cumsum(correct[order])))
    # The number of predictions that are at least as confident as each threshold.
    kept = len(scores) - np.searchsorted(np.sort(scores), confidences, side="left")
    precision = np.divide(hits[kept], kept, out=np.ones(len(kept)), where=kept > 0)
    return precision, hits[kept] / boxes
