from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.data import Detections, Letterbox, Tiles, Window, clip_boxes, merge_tiles

TileList = list[tuple[Letterbox, Detections]]


def test_clipped_boxes_need_a_visible_fraction() -> None:
    boxes = np.array([[10, 10, 20, 20], [95, 10, 105, 20], [99, 10, 109, 20], [200, 0, 210, 10]], float)
    clipped, kept = clip_boxes(boxes, Window(0, 5, 100, 100), min_visible=0.3)
    assert kept.tolist() == [0, 1]
    assert clipped.tolist() == [[10, 5, 20, 15], [95, 5, 100, 15]]


def test_objects_in_overlapping_tiles_are_merged() -> None:
    rng = np.random.default_rng(0)
    size, tiles = (4000, 3000), Tiles(640, 0.25)
    corner = np.stack([rng.permutation(39)[:30] * 100.0, rng.permutation(30)[:30] * 100.0], 1)
    truth = np.concatenate([corner, corner + rng.uniform(20, 90, (30, 2))], 1)
    classes = rng.integers(0, 3, 30)
    parts = []
    for window in tiles.grid(*size):
        letterbox = Letterbox(window, (320, 320))
        clipped, kept = clip_boxes(truth, window, min_visible=0.05)
        on_canvas = letterbox.to_canvas(clipped + np.tile([window.left, window.top], 2))
        noisy = on_canvas + rng.normal(0, 0.2, clipped.shape)
        parts.append((letterbox, Detections(noisy, rng.uniform(0.5, 1, len(kept)), classes[kept])))
    assert sum(len(detections.boxes) for _, detections in parts) > 40
    merged = merge_tiles(parts, size)
    assert len(merged.boxes) == 30
    assert np.all(np.diff(merged.scores) <= 0)
    for box, label in zip(truth, classes, strict=True):
        nearest = np.abs(merged.boxes - box).max(1).argmin()
        assert np.abs(merged.boxes[nearest] - box).max() < 3
        assert merged.classes[nearest] == label


def test_boxes_of_the_same_tile_are_not_merged() -> None:
    letterbox = Letterbox(Window(0, 0, 100, 100), (100, 100))
    detections = Detections(np.array([[0, 0, 90, 90], [10, 10, 20, 20.0]]), np.array([0.9, 0.8]), np.array([1, 1]))
    assert len(merge_tiles([(letterbox, detections)], (100, 100)).boxes) == 2
    assert len(merge_tiles([], (100, 100)).boxes) == 0


def merge_one_by_one(tiles: TileList, size: tuple[int, int], iou: float, *, across: bool) -> list[list[float]]:
    """The specification of `merge_tiles`, without vectorization."""
    rows = []
    for owner, (letterbox, detections) in enumerate(tiles):
        window = letterbox.window
        image_boxes = letterbox.to_image(detections.boxes)
        for box, score, label in zip(image_boxes, detections.scores, detections.classes, strict=True):
            left, top, right, bottom = np.clip(box, 0, np.tile(size, 2)).tolist()
            cut = (left <= window.left + 2 and window.left > 0) or (
                right >= window.right - 2 and window.right < size[0]
            )
            cut |= (top <= window.top + 2 and window.top > 0) or (
                bottom >= window.bottom - 2 and window.bottom < size[1]
            )
            rows.append((cut, -float(score), owner, int(label), [left, top, right, bottom]))
    kept: list[Any] = []
    for row in sorted(rows, key=lambda row: row[:2]):
        _, _, owner, label, (left, top, right, bottom) = row
        for _, _, other, other_label, box in kept:
            width, height = min(right, box[2]) - max(left, box[0]), min(bottom, box[3]) - max(top, box[1])
            shared = max(width, 0) * max(height, 0)
            areas = (right - left) * (bottom - top), (box[2] - box[0]) * (box[3] - box[1])
            same = shared > 0 and (shared >= iou * (sum(areas) - shared) or shared >= 0.7 * min(areas))
            if same and other != owner and (across or other_label == label):
                break
        else:
            kept.append(row)
    return [row[4] for row in sorted(kept, key=lambda row: row[1])]


@pytest.mark.medium
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 15), st.floats(0.1, 0.9), st.booleans())
def test_merge_equals_comparing_all_boxes_one_by_one(seed: int, count: int, iou: float, across: bool) -> None:  # noqa: FBT001  given by Hypothesis
    rng = np.random.default_rng(seed)
    size, parts = (500, 400), []
    for window in Tiles(200, 0.3).grid(*size):
        low = rng.uniform(0, 90, (count, 2))
        boxes = np.concatenate([low, low + rng.uniform(1, 40, (count, 2))], 1)
        scores = rng.permutation(1000)[:count] / 1000 + rng.random() * 1e-4  # all different
        parts.append((Letterbox(window, (100, 100)), Detections(boxes, scores, rng.integers(0, 2, count))))
    merged = merge_tiles(parts, size, iou, across_classes=across)
    assert np.allclose(merged.boxes, merge_one_by_one(parts, size, iou, across=across))


@pytest.mark.medium
def test_a_thousand_tiles_are_merged_in_seconds() -> None:
    rng = np.random.default_rng(0)
    parts = []
    for window in Tiles(640).grid(20_000, 20_000):
        low = rng.uniform(0, 600, (20, 2))
        boxes = np.concatenate([low, low + 30], 1)
        parts.append((Letterbox(window, (640, 640)), Detections(boxes, rng.random(20), np.zeros(20, np.int64))))
    started = time.process_time()
    merged = merge_tiles(parts, (20_000, 20_000))
    assert time.process_time() - started < 10
    assert 20_000 < len(merged.boxes) < len(parts) * 20
