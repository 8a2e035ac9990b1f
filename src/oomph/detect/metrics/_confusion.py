"""The confusion matrix of a detector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ._image_result import ImageResult
from ._matching import match_pairs, overlapping_pairs

CONFUSION_CONFIDENCE, CONFUSION_IOU = 0.25, 0.45  # as in YOLOv5


def confusion_matrix(results: Sequence[ImageResult], class_count: int) -> NDArray[np.int64]:
    """Count which class was predicted for boxes of which class: (predicted, true), each with background last.

    Boxes match whatever their classes, at IoU 0.45; those that overlap most first. The last row counts labeled
    boxes that were missed, the last column predictions (confidence above 0.25) where nothing is labeled.
    """
    matrix = np.zeros((class_count + 1, class_count + 1), np.int64)
    for result in results:
        predictions = result.predictions[result.predictions[:, 4] > CONFUSION_CONFIDENCE]
        predicted, true = predictions[:, 5].astype(np.int64), result.truth[:, 0].astype(np.int64)
        rows, columns, overlaps = overlapping_pairs(predictions[:, :4], result.truth[:, 1:], CONFUSION_IOU)
        order = np.argsort(-overlaps, kind="stable")
        pairs = match_pairs(rows[order], columns[order])
        matched_rows, matched_columns = [row for row, _ in pairs], [column for _, column in pairs]
        np.add.at(matrix, (predicted[matched_rows], true[matched_columns]), 1)
        np.add.at(matrix[:, class_count], np.delete(predicted, matched_rows), 1)
        np.add.at(matrix[class_count], np.delete(true, matched_columns), 1)
    return matrix


def per_true_class(matrix: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each column of a confusion matrix as fractions; NaN in columns that are empty."""
    totals = matrix.sum(0, keepdims=True)
    fractions: NDArray[np.float64] = np.divide(matrix, totals, out=np.full(matrix.shape, np.nan), where=totals > 0)
    return fractions
