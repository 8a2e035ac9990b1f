from __future__ import annotations

import numpy as np
import pytest

from oomph.detect import ImageResult, confusion_matrix
from oomph.detect.metrics import per_true_class

LEFT, MIDDLE, RIGHT = [0, 0, 10, 10], [40, 0, 50, 10], [80, 0, 90, 10]


def result(predictions: list[list[float]], truth: list[list[float]]) -> ImageResult:
    return ImageResult(
        np.array(predictions, dtype=np.float32).reshape(-1, 6), np.array(truth, dtype=np.float32).reshape(-1, 5)
    )


def test_right_wrong_missed_and_invented_boxes() -> None:
    truth: list[list[float]] = [[0, *LEFT], [1, *MIDDLE]]
    first = result([[*LEFT, 0.9, 0], [*MIDDLE, 0.8, 0], [*RIGHT, 0.7, 1]], truth)
    second = result([[*RIGHT, 0.9, 0]], [[1, *LEFT]])
    assert confusion_matrix([first, second], 2).tolist() == [
        [1, 1, 1],  # class 0 was predicted for a 0, for a 1, and for background
        [0, 0, 1],
        [0, 1, 0],  # a 1 was missed
    ]


def test_uncertain_predictions_and_small_overlaps_are_ignored() -> None:
    uncertain, shifted = [*LEFT, 0.25, 0], [4, 0, 14, 10, 0.9, 0]  # IoU 0.43
    assert confusion_matrix([result([uncertain, shifted], [[0, *LEFT]])], 1).tolist() == [[0, 1], [1, 0]]


def test_the_prediction_that_overlaps_most_is_matched_and_the_other_is_background() -> None:
    shifted = [1, 0, 11, 10]
    matrix = confusion_matrix([result([[*shifted, 0.9, 1], [*LEFT, 0.5, 0]], [[0, *LEFT]])], 2)
    assert matrix.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("results", [[], [result([], [])]])
def test_without_boxes_all_counts_are_zero(results: list[ImageResult]) -> None:
    assert not confusion_matrix(results, 2).any()


def test_fractions_are_of_the_true_class_and_undefined_without_boxes() -> None:
    fractions = per_true_class(np.array([[3, 0, 1], [1, 0, 1], [0, 0, 0]]))
    assert fractions[:, 0].tolist() == [0.75, 0.25, 0]
    assert np.isnan(fractions[:, 1]).all()
    assert fractions[:, 2].tolist() == [0.5, 0.5, 0]
