"""Matching of predicted boxes to labeled ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PAIRS_AT_ONCE = 1_000_000


def overlapping_pairs(
    first: NDArray[np.float32], second: NDArray[np.float32], min_iou: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the numbers and the IoU of all pairs of a box of (n, 4) and one of (m, 4) with at least that IoU.

    Boxes are corners. Large images have tens of thousands of them, so the pairs are computed in parts.
    """
    step = max(_PAIRS_AT_ONCE // max(len(second), 1), 1)
    parts = (_overlaps(first[start : start + step], second) for start in range(0, len(first), step))
    pairs = [(*np.nonzero(part >= min_iou), part[part >= min_iou]) for part in parts]
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    rows = np.concatenate([part[0] + number * step for number, part in enumerate(pairs)])
    return rows, np.concatenate([part[1] for part in pairs]), np.concatenate([part[2] for part in pairs])


def _overlaps(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the IoU of every pair, as (n, m)."""
    left, right = first.astype(np.float64)[:, None], second.astype(np.float64)[None]
    sides = np.minimum(left[..., 2:], right[..., 2:]) - np.maximum(left[..., :2], right[..., :2])
    intersection = sides.clip(min=0).prod(-1)
    union = (left[..., 2:] - left[..., :2]).prod(-1) + (right[..., 2:] - right[..., :2]).prod(-1) - intersection
    overlaps: NDArray[np.float64] = np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)
    return overlaps


def match_pairs(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the pairs that remain when each row and column is used once, the earlier pairs first."""
    pairs: list[tuple[int, int]] = []
    used_rows, used_columns = set[int](), set[int]()
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        if row not in used_rows and column not in used_columns:
            pairs.append((row, column))
            used_rows.add(row)
            used_columns.add(column)
    return pairs
