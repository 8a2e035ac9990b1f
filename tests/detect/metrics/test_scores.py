from __future__ import annotations

import numpy as np
import pytest

from oomph.detect.metrics._scores import ImageResult, score

NAMES = ("cat", "dog", "cow")


def image(found: list[list[float]], truth: list[list[float]]) -> ImageResult:
    return ImageResult(
        np.array(found, dtype=np.float32).reshape(-1, 6), np.array(truth, dtype=np.float32).reshape(-1, 5)
    )


def test_perfect_detections_score_one() -> None:
    truth: list[list[float]] = [[0, 10, 10, 60, 60], [1, 100, 100, 400, 300]]
    found = [[10, 10, 60, 60, 0.9, 0], [100, 100, 400, 300, 0.8, 1]]
    scores = score([image(found, truth), image([], [])], NAMES)
    assert (scores.map50, scores.map50_95, scores.fitness) == pytest.approx((1.0, 1.0, 1.0))
    assert scores.by_size == {"small": None, "medium": pytest.approx(1.0), "large": pytest.approx(1.0)}
    assert [one.boxes for one in scores.by_class] == [1, 1, 0]
    assert scores.by_class[2].map50 is None  # no cows: no figure, and none in the mean
    assert (scores.images, scores.boxes) == (2, 2)
    assert scores.by_class[0].confidence == pytest.approx(0.9)


def test_overlap_decides_which_thresholds_are_met() -> None:
    # Overlap 0.8: met at 0.5, 0.55, … 0.8 (the last by a hair, or not), missed above.
    scores = score([image([[0, 0, 100, 81, 0.9, 0]], [[0, 0, 0, 100, 100]])], NAMES[:1])
    assert scores.map50 == pytest.approx(1.0)
    assert scores.map50_95 == pytest.approx(0.7)


def test_half_found_and_half_wrong() -> None:
    truth: list[list[float]] = [[0, 0, 0, 50, 50], [0, 100, 0, 150, 50]]
    found = [[0, 0, 50, 50, 0.9, 0], [300, 300, 350, 350, 0.5, 0]]
    scores = score([image(found, truth)], NAMES[:1])
    assert scores.map50 == pytest.approx(51 / 101)  # precision 1 up to a recall of a half, 0 beyond
    assert scores.by_class[0].recall == pytest.approx(0.5)
    assert scores.by_class[0].precision == pytest.approx(1.0)
    assert len(scores.by_class[0].curve) == 101


def test_nothing_found_and_nothing_there_are_zero() -> None:
    nothing = score([image([], [[1, 0, 0, 9, 9]])], NAMES)
    assert (nothing.map50, nothing.map50_95, nothing.recall) == (0.0, 0.0, 0.0)
    assert nothing.by_class[1].map50 == 0.0
    assert nothing.by_class[0].map50 is None
    assert score([image([[0, 0, 9, 9, 0.9, 0]], [])], NAMES).map50 == 0.0


def test_up_to_300_boxes_an_image_count() -> None:
    found = [[0, 0, 9, 9, 0.9 - at / 1000, 0] for at in range(200)] + [[50, 50, 90, 90, 0.1, 0]]
    scores = score([image(found, [[0, 50, 50, 90, 90]])], NAMES[:1])
    assert scores.map50 > 0


def test_the_other_library_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pycocotools")
    rng = np.random.default_rng(0)
    results = []
    for _ in range(20):
        low = rng.uniform(0, 100, (6, 2))
        boxes = np.concatenate((low, low + rng.uniform(5, 80, (6, 2))), 1)
        labels = rng.integers(0, 3, (6, 1))
        moved = boxes + rng.normal(0, 4, boxes.shape)
        found = np.concatenate((moved, rng.random((6, 1)), labels), 1)
        results.append(ImageResult(found.astype(np.float32), np.concatenate((labels, boxes), 1).astype(np.float32)))
    fast = score(results, NAMES)
    monkeypatch.setitem(__import__("sys").modules, "faster_coco_eval", None)
    assert score(results, NAMES).map50_95 == pytest.approx(fast.map50_95, abs=1e-6)
