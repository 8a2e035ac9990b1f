from __future__ import annotations

import sys

import numpy as np
import pytest

from oomph.detect import ImageResult, score

NAMES = ("cat", "dog", "cow")


def result(predictions: list[list[float]], truth: list[list[float]]) -> ImageResult:
    return ImageResult(
        np.array(predictions, dtype=np.float32).reshape(-1, 6), np.array(truth, dtype=np.float32).reshape(-1, 5)
    )


def test_perfect_predictions_score_one() -> None:
    truth: list[list[float]] = [[0, 10, 10, 60, 60], [1, 100, 100, 400, 300]]
    predictions = [[10, 10, 60, 60, 0.9, 0], [100, 100, 400, 300, 0.8, 1]]
    scores = score([result(predictions, truth), result([], [])], NAMES)
    assert (scores.map50, scores.map50_95, scores.fitness) == pytest.approx((1.0, 1.0, 1.0))
    assert scores.by_size == {"small": None, "medium": pytest.approx(1.0), "large": pytest.approx(1.0)}
    assert [item.boxes for item in scores.by_class] == [1, 1, 0]
    assert scores.by_class[2].map50 is None  # a class without boxes doesn't count in the mean
    assert (scores.images, scores.boxes) == (2, 2)
    assert scores.by_class[0].confidence == pytest.approx(0.9)


def test_iou_decides_which_thresholds_are_met() -> None:
    # IoU 0.81: met at 0.5, 0.55, … 0.8, missed above.
    scores = score([result([[0, 0, 100, 81, 0.9, 0]], [[0, 0, 0, 100, 100]])], NAMES[:1])
    assert scores.map50 == pytest.approx(1.0)
    assert scores.map50_95 == pytest.approx(0.7)


def test_half_detected_and_half_wrong() -> None:
    truth: list[list[float]] = [[0, 0, 0, 50, 50], [0, 100, 0, 150, 50]]
    predictions = [[0, 0, 50, 50, 0.9, 0], [300, 300, 350, 350, 0.5, 0]]
    scores = score([result(predictions, truth)], NAMES[:1])
    assert scores.map50 == pytest.approx(51 / 101)  # precision 1 up to recall 0.5, 0 beyond
    assert scores.by_class[0].recall == pytest.approx(0.5)
    assert scores.by_class[0].precision == pytest.approx(1.0)
    assert len(scores.by_class[0].curve) == 101


def test_without_predictions_or_boxes_everything_is_zero() -> None:
    scores = score([result([], [[1, 0, 0, 9, 9]])], NAMES)
    assert (scores.map50, scores.map50_95, scores.recall) == (0.0, 0.0, 0.0)
    assert scores.by_class[1].map50 == 0.0
    assert scores.by_class[0].map50 is None
    assert score([result([[0, 0, 9, 9, 0.9, 0]], [])], NAMES).map50 == 0.0


def test_at_least_300_boxes_per_image_are_scored() -> None:
    wrong = [[0, 0, 9, 9, 0.9 - number / 1000, 0] for number in range(200)]
    scores = score([result([*wrong, [50, 50, 90, 90, 0.1, 0]], [[0, 50, 50, 90, 90]])], NAMES[:1])
    assert scores.map50 > 0


def test_all_boxes_of_merged_tiles_are_scored() -> None:
    corners = np.stack(np.meshgrid(np.arange(30), np.arange(20)), -1).reshape(-1, 2) * 100.0
    boxes = np.concatenate((corners, corners + 30), 1).astype(np.float32)
    predictions = np.column_stack((boxes, np.full(600, 0.9), np.zeros(600))).astype(np.float32)
    truth = np.column_stack((np.zeros(600), boxes)).astype(np.float32)
    assert score([ImageResult(predictions, truth)], ["thing"]).map50 == pytest.approx(1, abs=1e-6)


def test_both_coco_libraries_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pycocotools")
    rng = np.random.default_rng(0)
    results = []
    for _ in range(20):
        low = rng.uniform(0, 100, (6, 2))
        boxes = np.concatenate((low, low + rng.uniform(5, 80, (6, 2))), 1)
        labels = rng.integers(0, 3, (6, 1))
        moved = boxes + rng.normal(0, 4, boxes.shape)
        predictions = np.concatenate((moved, rng.random((6, 1)), labels), 1).astype(np.float32)
        results.append(ImageResult(predictions, np.concatenate((labels, boxes), 1).astype(np.float32)))
    scores = score(results, NAMES)
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    assert score(results, NAMES).map50_95 == pytest.approx(scores.map50_95, abs=1e-6)
