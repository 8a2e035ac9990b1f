"""Check anchors against the boxes of a dataset, and fit new ones where they don't match."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._network import ANCHORS, Anchors

BoxSizes = NDArray[np.float64]  # (n, 2): width and height in pixels
_MIN_RECALL = 0.98
_ANCHOR_COUNT = 9
_MIN_PIXELS = 2.0
_KMEANS_ROUNDS = 30
_MUTATIONS = 400
_MAX_BOXES = 20_000  # that anchors are fitted to


@dataclass(frozen=True)
class AnchorCheck:
    """Result of comparing anchors with boxes.

    Attributes:
        recall: fraction of boxes that match some anchor.
        anchors: the anchors to train with, in pixels.
        fitted: True if the anchors were fitted to the boxes.
        fitted_recall: fraction of boxes that match `anchors`.
    """

    recall: float
    anchors: Anchors
    fitted: bool
    fitted_recall: float


def anchor_recall(sizes: BoxSizes, anchors: BoxSizes, anchor_t: float = 4.0) -> float:
    """Return the fraction of boxes that are less than `anchor_t` times larger or smaller than some anchor."""
    return float((_similarity(sizes, anchors).max(1) > 1 / anchor_t).mean()) if len(sizes) else 1.0


def check_anchors(sizes: BoxSizes, anchors: Anchors = ANCHORS, anchor_t: float = 4.0, seed: int = 0) -> AnchorCheck:
    """Compare anchors with boxes, and fit new anchors if fewer than 98 % of the boxes match."""
    table = np.array(anchors, dtype=np.float64).reshape(-1, 2)
    usable = sizes[(sizes >= _MIN_PIXELS).all(1)]
    recall = anchor_recall(usable, table, anchor_t)
    unchanged = AnchorCheck(recall, anchors, fitted=False, fitted_recall=recall)
    if recall >= _MIN_RECALL or len(usable) < _ANCHOR_COUNT:
        return unchanged
    fitted = fit_anchors(usable, anchor_t, seed)
    fitted_recall = anchor_recall(usable, fitted, anchor_t)
    if fitted_recall <= recall:
        return unchanged
    levels = tuple(tuple((float(wide), float(high)) for wide, high in level) for level in fitted.reshape(3, 3, 2))
    return AnchorCheck(recall, levels, fitted=True, fitted_recall=fitted_recall)


def fit_anchors(sizes: BoxSizes, anchor_t: float = 4.0, seed: int = 0) -> BoxSizes:
    """Fit nine anchors, smallest first: k-means on the logarithms of the sides, then random mutations."""
    rng = np.random.default_rng(seed)
    if len(sizes) > _MAX_BOXES:
        sizes = sizes[rng.choice(len(sizes), _MAX_BOXES, replace=False)]
    best = np.exp(_k_means(np.log(sizes), rng))
    best_fitness = _fitness(sizes, best, anchor_t)
    for _ in range(_MUTATIONS):
        mutant = best * np.exp(rng.normal(0, 0.1, best.shape) * (rng.random(best.shape) < 0.5))  # noqa: PLR2004  half
        fitness = _fitness(sizes, mutant, anchor_t)
        if fitness > best_fitness:
            best, best_fitness = mutant, fitness
    rounded = np.maximum(np.round(best, 1), _MIN_PIXELS)
    return rounded[np.argsort(rounded.prod(1), kind="stable")]


def _k_means(points: BoxSizes, rng: np.random.Generator) -> BoxSizes:
    """Run Lloyd's algorithm from k-means++ centers."""
    centers = points[[int(rng.integers(len(points)))]]
    while len(centers) < _ANCHOR_COUNT:
        distances = _squared_distances(points, centers).min(1) + 1e-12
        centers = np.concatenate((centers, points[[int(rng.choice(len(points), p=distances / distances.sum()))]]))
    for _ in range(_KMEANS_ROUNDS):
        nearest = _squared_distances(points, centers).argmin(1)
        counts = np.bincount(nearest, minlength=_ANCHOR_COUNT)[:, None]
        sums = np.stack([np.bincount(nearest, points[:, axis], _ANCHOR_COUNT) for axis in (0, 1)], 1)
        centers = np.where(counts > 0, sums / np.maximum(counts, 1), centers)
    return centers


def _squared_distances(points: BoxSizes, centers: BoxSizes) -> BoxSizes:
    squares: BoxSizes = ((points[:, None] - centers[None]) ** 2).sum(2)
    return squares


def _similarity(sizes: BoxSizes, anchors: BoxSizes) -> BoxSizes:
    """Return the worse of the two side ratios of each box and anchor, inverted to be at most 1."""
    ratios = sizes[:, None] / anchors[None]
    worse: BoxSizes = np.minimum(ratios, 1 / ratios).min(2)
    return worse


def _fitness(sizes: BoxSizes, anchors: BoxSizes, anchor_t: float) -> float:
    best = _similarity(sizes, anchors).max(1)
    return float((best * (best > 1 / anchor_t)).mean())
