from __future__ import annotations

import numpy as np
import pytest
import torch

from oomph.detect import box_iou
from oomph.detect.metrics import _matching
from oomph.detect.metrics._matching import match_pairs, overlapping_pairs


def corners(count: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    points = np.random.default_rng(seed).uniform(0, 100, (count, 2, 2)).astype(np.float32)
    return np.concatenate((points.min(1), points.max(1)), 1)


@pytest.mark.parametrize("at_once", [1, 7, 1_000_000])
def test_pairs_are_those_of_the_whole_table_however_it_is_cut(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_matching, "_PAIRS_AT_ONCE", at_once)
    first, second = corners(20, 0), corners(5, 1)
    table = box_iou(torch.from_numpy(first), torch.from_numpy(second)).numpy()
    rows, columns, overlaps = overlapping_pairs(first, second, 0.1)
    assert [*zip(rows, columns, strict=True)] == [*zip(*np.nonzero(table >= 0.1), strict=True)]
    assert overlaps == pytest.approx(table[rows, columns], abs=1e-5)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 3), (3, 0)])
def test_without_boxes_there_are_no_pairs(first: int, second: int) -> None:
    assert [len(part) for part in overlapping_pairs(corners(first, 0), corners(second, 1), 0.5)] == [0, 0, 0]


def test_boxes_without_area_overlap_nothing() -> None:
    point = np.array([[5, 5, 5, 5]], np.float32)
    assert len(overlapping_pairs(point, point, 0.1)[0]) == 0


def test_each_box_is_matched_once_and_the_first_pair_wins() -> None:
    rows, columns = np.array([2, 2, 0, 1]), np.array([1, 0, 1, 0])
    assert match_pairs(rows, columns) == [(2, 1), (1, 0)]
