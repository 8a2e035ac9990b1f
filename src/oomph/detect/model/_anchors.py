"""Do the anchors match the boxes of the data, and which ones would?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..dataset._labels import LabelTable
from ._network import ANCHORS, Anchors

Sizes = NDArray[np.float64]  # (n, 2): width and height in pixels
_ENOUGH = 0.98
_COUNT = 9
_SMALLEST = 2.0
_ROUNDS = 30
_TRIES = 400
_MOST = 20_000  # boxes that anchors are fitted to


@dataclass(frozen=True)
class AnchorCheck:
    """What came of comparing anchors with boxes.

    Attributes:
        recall: the share of boxes that some anchor can match.
        anchors: those to train with, in pixels; others than before if they were fitted anew.
        fitted: whether they were, and better; fitted_recall: the share that the new ones can match.
    """

    recall: float
    anchors: Anchors
    fitted: bool
    fitted_recall: float


def box_sizes(labels: LabelTable, shapes: Sequence[tuple[int, int]], size: int, window: float = float("inf")) -> Sizes:
    """Width and height of every box in pixels, images (height, width) scaled so that their longer side is `size`.

    Of images that are cut into windows, it is the side of a window that is scaled to `size`.
    """
    sides = np.array([(wide, high) for high, wide in shapes], dtype=np.float64).reshape(-1, 2)
    scaled = sides * size / sides.max(1, keepdims=True).clip(max=window) if len(sides) else sides
    found: Sizes = labels.boxes[:, 3:5] * np.repeat(scaled, np.diff(labels.starts), axis=0)
    return found


def best_recall(sizes: Sizes, anchors: Sizes, ratio: float = 4.0) -> float:
    """The share of boxes that are at most `ratio` times larger or smaller than some anchor."""
    return float((_closeness(sizes, anchors).max(1) > 1 / ratio).mean()) if len(sizes) else 1.0


def check_anchors(sizes: Sizes, anchors: Anchors = ANCHORS, ratio: float = 4.0, seed: int = 0) -> AnchorCheck:
    """Compare anchors with boxes, and fit new ones where fewer than 98 % can be matched."""
    before = np.array(anchors, dtype=np.float64).reshape(-1, 2)
    usable = sizes[(sizes >= _SMALLEST).all(1)]
    recall = best_recall(usable, before, ratio)
    if recall >= _ENOUGH or len(usable) < _COUNT:
        return AnchorCheck(recall, anchors, fitted=False, fitted_recall=recall)
    after = fit_anchors(usable, ratio, seed)
    better = best_recall(usable, after, ratio)
    if better <= recall:
        return AnchorCheck(recall, anchors, fitted=False, fitted_recall=recall)
    table = tuple(tuple((float(wide), float(high)) for wide, high in level) for level in after.reshape(3, 3, 2))
    return AnchorCheck(recall, table, fitted=True, fitted_recall=better)


def fit_anchors(sizes: Sizes, ratio: float = 4.0, seed: int = 0) -> Sizes:
    """Nine anchors for boxes, smallest first: k-means on the logarithms of their sides, then small trials."""
    rng = np.random.default_rng(seed)
    if len(sizes) > _MOST:
        sizes = sizes[rng.choice(len(sizes), _MOST, replace=False)]
    best = np.exp(_k_means(np.log(sizes), rng))
    fitness = _fitness(sizes, best, ratio)
    for _ in range(_TRIES):
        trial = best * np.exp(rng.normal(0, 0.1, best.shape) * (rng.random(best.shape) < 0.5))  # noqa: PLR2004  half
        now = _fitness(sizes, trial, ratio)
        if now > fitness:
            best, fitness = trial, now
    rounded = np.maximum(np.round(best, 1), _SMALLEST)
    return rounded[np.argsort(rounded.prod(1), kind="stable")]


def _k_means(points: Sizes, rng: np.random.Generator) -> Sizes:
    """Lloyd's rounds from centres that were drawn far apart."""
    centres = points[[int(rng.integers(len(points)))]]
    while len(centres) < _COUNT:
        away = _distances(points, centres).min(1) + 1e-12
        centres = np.concatenate((centres, points[[int(rng.choice(len(points), p=away / away.sum()))]]))
    for _ in range(_ROUNDS):
        nearest = _distances(points, centres).argmin(1)
        counts = np.bincount(nearest, minlength=_COUNT)[:, None]
        sums = np.stack([np.bincount(nearest, points[:, axis], _COUNT) for axis in (0, 1)], 1)
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
    return centres


def _distances(points: Sizes, centres: Sizes) -> Sizes:
    squares: Sizes = ((points[:, None] - centres[None]) ** 2).sum(2)
    return squares


def _closeness(sizes: Sizes, anchors: Sizes) -> Sizes:
    """For each box and anchor, the worse of their two side ratios, turned to be at most 1."""
    ratios = sizes[:, None] / anchors[None]
    worse: Sizes = np.minimum(ratios, 1 / ratios).min(2)
    return worse


def _fitness(sizes: Sizes, anchors: Sizes, ratio: float) -> float:
    best = _closeness(sizes, anchors).max(1)
    return float((best * (best > 1 / ratio)).mean())
