from __future__ import annotations

import numpy as np
import pytest

from oomph.detect.dataset._labels import LabelTable
from oomph.detect.model._anchors import best_recall, box_sizes, check_anchors, fit_anchors
from oomph.detect.model._network import ANCHORS


def boxes(low: float, high: float, count: int = 500) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rng = np.random.default_rng(0)
    return np.exp(rng.uniform(np.log(low), np.log(high), (count, 2)))


def test_ordinary_boxes_keep_the_anchors() -> None:
    check = check_anchors(boxes(20, 200) * [[1.0, 1.2]])
    assert check.recall > 0.98
    assert not check.fitted
    assert check.anchors is ANCHORS


def test_long_thin_boxes_get_anchors_of_their_own() -> None:
    sizes = boxes(5, 20) * [[1.0, 20.0]]
    check = check_anchors(sizes)
    assert check.recall < 0.9
    assert check.fitted
    assert check.fitted_recall > 0.98
    areas = [wide * high for level in check.anchors for wide, high in level]
    assert areas == sorted(areas)
    assert len(areas) == 9
    assert best_recall(sizes, np.array(check.anchors).reshape(-1, 2)) == check.fitted_recall


def test_a_fit_depends_on_nothing_but_boxes_and_seed() -> None:
    sizes = boxes(3, 300)
    assert np.array_equal(fit_anchors(sizes, seed=1), fit_anchors(sizes, seed=1))


def test_too_few_boxes_fit_nothing() -> None:
    assert not check_anchors(np.full((3, 2), 900.0) * [[1, 0.01]]).fitted
    assert check_anchors(np.zeros((0, 2))).recall == 1.0


def test_sizes_are_those_that_the_network_sees() -> None:
    labels = LabelTable(np.array([[0, 0.5, 0.5, 0.5, 0.1]] * 3, dtype=np.float32), np.array([0, 1, 3]))
    sizes = box_sizes(labels, [(100, 200), (1000, 500)], 640)
    assert sizes.tolist() == [pytest.approx([320, 32]), pytest.approx([160, 64]), pytest.approx([160, 64])]
