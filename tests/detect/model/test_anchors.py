from __future__ import annotations

import numpy as np
import pytest

from oomph.detect import ANCHORS, check_anchors
from oomph.detect.model._anchors import anchor_recall, fit_anchors


def box_sizes(low: float, high: float, count: int = 500) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rng = np.random.default_rng(0)
    return np.exp(rng.uniform(np.log(low), np.log(high), (count, 2)))


def test_ordinary_boxes_keep_the_anchors() -> None:
    check = check_anchors(box_sizes(20, 200) * [[1.0, 1.2]])
    assert check.recall > 0.98
    assert not check.fitted
    assert check.anchors is ANCHORS


def test_anchors_are_fitted_to_long_thin_boxes() -> None:
    sizes = box_sizes(5, 20) * [[1.0, 20.0]]
    check = check_anchors(sizes)
    assert check.recall < 0.9
    assert check.fitted
    assert check.fitted_recall > 0.98
    areas = [width * height for level in check.anchors for width, height in level]
    assert areas == sorted(areas)
    assert len(areas) == 9
    assert anchor_recall(sizes, np.array(check.anchors).reshape(-1, 2)) == check.fitted_recall


@pytest.mark.medium
def test_fit_depends_on_boxes_and_seed_alone() -> None:
    sizes = box_sizes(3, 300)
    assert np.array_equal(fit_anchors(sizes, seed=1), fit_anchors(sizes, seed=1))


def test_too_few_boxes_keep_the_anchors() -> None:
    assert not check_anchors(np.full((3, 2), 900.0) * [[1, 0.01]]).fitted
    assert check_anchors(np.zeros((0, 2))).recall == 1.0
