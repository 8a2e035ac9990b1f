from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from oomph.detect import ConfidenceCurves, ImageResult, confidence_curves, score
from oomph.detect.metrics._confidence_curves import correct_predictions


def result(predictions: list[list[float]], truth: list[list[float]]) -> ImageResult:
    return ImageResult(
        np.array(predictions, dtype=np.float32).reshape(-1, 6), np.array(truth, dtype=np.float32).reshape(-1, 5)
    )


def at(curves: ConfidenceCurves, values: NDArray[np.float64], confidence: float) -> float:
    """Return the value of the first class at a threshold."""
    return float(values[0, np.abs(curves.confidences - confidence).argmin()])


def test_curves_of_three_predictions() -> None:
    """Two boxes: found at 0.9 and at 0.3, with a wrong prediction at 0.6 in between."""
    truth: list[list[float]] = [[0, 0, 0, 10, 10], [0, 50, 50, 60, 60]]
    predictions = [[0, 0, 10, 10, 0.9, 0], [80, 80, 90, 90, 0.6, 0], [50, 50, 60, 60, 0.3, 0]]
    curves = confidence_curves([result(predictions, truth)], 2)
    assert curves.classes == (0,)
    thresholds = (0.95, 0.8, 0.5, 0.2)
    assert [at(curves, curves.precision, value) for value in thresholds] == pytest.approx([1, 1, 1 / 2, 2 / 3])
    assert [at(curves, curves.recall, value) for value in thresholds] == pytest.approx([0, 1 / 2, 1 / 2, 1])
    assert [at(curves, curves.f1, value) for value in thresholds] == pytest.approx([0, 2 / 3, 1 / 2, 4 / 5])


def test_a_box_counts_once_and_for_the_most_confident_prediction_of_its_class() -> None:
    box = [0, 0, 10, 10]
    predictions = [[*box, 0.5, 0], [*box, 0.8, 0], [*box, 0.9, 1]]
    assert correct_predictions(result(predictions, [[0, *box]])).tolist() == [False, True, False]


def test_a_prediction_takes_the_box_that_it_overlaps_most() -> None:
    truth: list[list[float]] = [[0, 0, 0, 10, 10], [0, 2, 0, 12, 10]]
    predictions = [[2, 0, 12, 10, 0.9, 0], [0, 0, 10, 10, 0.8, 0]]
    assert correct_predictions(result(predictions, truth)).tolist() == [True, True]


@pytest.mark.parametrize("results", [[], [result([], [])], [result([[0, 0, 9, 9, 0.9, 0]], [])]])
def test_without_boxes_there_is_no_class(results: list[ImageResult]) -> None:
    curves = confidence_curves(results, 3)
    assert curves.classes == ()
    assert curves.f1.shape == (0, 501)


def test_without_predictions_recall_is_zero() -> None:
    curves = confidence_curves([result([], [[1, 0, 0, 9, 9]])], 3)
    assert curves.classes == (1,)
    assert not curves.recall.any()
    assert not curves.f1.any()


def test_average_precision_of_the_matches_is_that_of_the_coco_library() -> None:
    generator = np.random.default_rng(0)
    results = []
    for _ in range(30):
        truth = np.zeros((6, 5), np.float32)
        truth[:, 1:3] = generator.uniform(0, 300, (6, 2))
        truth[:, 3:] = truth[:, 1:3] + generator.uniform(40, 120, (6, 2))
        shifted = np.repeat(truth[:, 1:], 3, 0) + generator.normal(0, 12, (18, 4))
        rest = np.stack((generator.uniform(0, 1, 18), np.zeros(18)), 1)
        results.append(ImageResult(np.concatenate((shifted, rest), 1).astype(np.float32), truth))
    correct = np.concatenate([correct_predictions(item) for item in results])
    confidence = np.concatenate([item.predictions[:, 4] for item in results])
    hits = correct[np.argsort(-confidence, kind="stable")].cumsum()
    precision = np.maximum.accumulate((hits / np.arange(1, len(hits) + 1))[::-1])[::-1]
    places = np.searchsorted(hits / 180, np.linspace(0, 1, 101))
    expected = np.mean([precision[place] if place < len(hits) else 0.0 for place in places])
    assert 0.2 < expected < 0.9
    assert score(results, ("cat",)).map50 == pytest.approx(expected, abs=1e-6)
