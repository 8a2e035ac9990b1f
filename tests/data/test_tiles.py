from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from oomph.data import (
    BoxTarget,
    Detections,
    ImageIndex,
    Labels,
    Letterbox,
    Loader,
    TileGridSamples,
    Tiles,
    TileSampler,
    TileSamples,
    Window,
    clip_boxes,
    decode_windows,
    merge_tiles,
)
from oomph.data.decoding import _decode
from oomph.data.decoding._rows import cut_rows
from oomph.data.loader import _maker
from oomph.errors import UsageError

from .pictures import photos, scene


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 1200), st.floats(0, 0.95))
def test_a_grid_covers_every_pixel_with_windows_of_one_size(width: int, height: int, side: int, overlap: float) -> None:
    tiles = Tiles(side, overlap)
    if width * height / (side * (1 - overlap) + 1) ** 2 > 2000:
        return
    windows = tiles.grid(width, height)
    assert {window.size for window in windows} == {(min(side, width), min(side, height))}
    for axis, length in enumerate((width, height)):
        edges = sorted({(window[axis], window[axis + 2]) for window in windows})
        assert edges[0][0] == 0
        assert edges[-1][1] == length
        shared = [before[1] - after[0] for before, after in pairwise(edges)]
        assert all(pixels >= int(min(side, length) * overlap) - 1 for pixels in shared)


def test_tiles_that_cannot_be_cut_are_one_sentence() -> None:
    with pytest.raises(UsageError, match="overlap by 1"):
        Tiles(640, 1)


def test_tiles_pay_for_large_images_with_small_objects() -> None:
    assert Tiles(1024).pay(20000, 20000, 640, 30)
    assert not Tiles(1024).pay(20000, 20000, 640, 5000)
    assert not Tiles(1024).pay(800, 600, 640, 5)


def test_labels_are_clipped_and_left_out_when_little_is_visible() -> None:
    boxes = np.array([[10, 10, 20, 20], [95, 10, 105, 20], [99, 10, 109, 20], [200, 0, 210, 10]], float)
    clipped, kept = clip_boxes(boxes, Window(0, 5, 100, 100), visible=0.3)
    assert kept.tolist() == [0, 1]
    assert clipped.tolist() == [[10, 5, 20, 15], [95, 5, 100, 15]]


def test_what_is_found_in_tiles_is_found_once_in_the_image() -> None:
    rng = np.random.default_rng(0)
    size, tiles = (4000, 3000), Tiles(640, 0.25)
    corner = np.stack([rng.permutation(39)[:30] * 100.0, rng.permutation(30)[:30] * 100.0], 1)
    truth = np.concatenate([corner, corner + rng.uniform(20, 90, (30, 2))], 1)
    kinds = rng.integers(0, 3, 30)
    pieces = []
    for window in tiles.grid(*size):
        spot = Letterbox(window, (320, 320))
        clipped, kept = clip_boxes(truth, window, visible=0.05)
        on_canvas = spot.to_canvas(clipped + np.tile([window.left, window.top], 2)) + rng.normal(0, 0.2, clipped.shape)
        pieces.append((spot, Detections(on_canvas, rng.uniform(0.5, 1, len(kept)), kinds[kept])))
    assert sum(len(found.boxes) for _, found in pieces) > 40
    found = merge_tiles(pieces, size)
    assert len(found.boxes) == 30
    assert np.all(np.diff(found.scores) <= 0)
    for box, kind in zip(truth, kinds, strict=True):
        nearest = np.abs(found.boxes - box).max(1).argmin()
        assert np.abs(found.boxes[nearest] - box).max() < 3
        assert found.classes[nearest] == kind


def test_a_small_object_in_a_large_one_of_the_same_tile_stays() -> None:
    spot = Letterbox(Window(0, 0, 100, 100), (100, 100))
    found = Detections(np.array([[0, 0, 90, 90], [10, 10, 20, 20.0]]), np.array([0.9, 0.8]), np.array([1, 1]))
    assert len(merge_tiles([(spot, found)], (100, 100)).boxes) == 2
    assert len(merge_tiles([], (100, 100)).boxes) == 0


def one_by_one(
    tiles: list[tuple[Letterbox, Detections]], size: tuple[int, int], same: float, *, across: bool
) -> list[list[float]]:
    """What `merge_tiles` promises, written down plainly."""
    rows = []
    for owner, (spot, found) in enumerate(tiles):
        window = spot.window
        for box, sure, kind in zip(spot.to_image(found.boxes), found.scores, found.classes, strict=True):
            left, top, right, bottom = np.clip(box, 0, np.tile(size, 2)).tolist()
            cut = (left <= window.left + 2 and window.left > 0) or (
                right >= window.right - 2 and window.right < size[0]
            )
            cut |= (top <= window.top + 2 and window.top > 0) or (
                bottom >= window.bottom - 2 and window.bottom < size[1]
            )
            rows.append((cut, -float(sure), owner, int(kind), [left, top, right, bottom]))
    kept: list[Any] = []
    for row in sorted(rows, key=lambda row: row[:2]):
        _, _, owner, kind, (left, top, right, bottom) = row
        for _, _, other, like, box in kept:
            wide, high = min(right, box[2]) - max(left, box[0]), min(bottom, box[3]) - max(top, box[1])
            shared = max(wide, 0) * max(high, 0)
            areas = (right - left) * (bottom - top), (box[2] - box[0]) * (box[3] - box[1])
            double = shared > 0 and (shared >= same * (sum(areas) - shared) or shared >= 0.7 * min(areas))
            if double and other != owner and (across or like == kind):
                break
        else:
            kept.append(row)
    return [row[4] for row in sorted(kept, key=lambda row: row[1])]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 25), st.floats(0.1, 0.9), st.booleans())
def test_stitching_is_going_through_all_boxes_one_by_one(seed: int, count: int, same: float, across: bool) -> None:  # noqa: FBT001  given by Hypothesis
    rng = np.random.default_rng(seed)
    size, parts = (500, 400), []
    for window in Tiles(200, 0.3).grid(*size):
        low = rng.uniform(0, 90, (count, 2))
        boxes = np.concatenate([low, low + rng.uniform(1, 40, (count, 2))], 1)
        scores = rng.permutation(1000)[:count] / 1000 + rng.random() * 1e-4  # none like another
        parts.append((Letterbox(window, (100, 100)), Detections(boxes, scores, rng.integers(0, 2, count))))
    found = merge_tiles(parts, size, same, across_classes=across)
    assert np.allclose(found.boxes, one_by_one(parts, size, same, across=across))


def test_thousands_of_windows_are_stitched_in_a_moment() -> None:
    rng = np.random.default_rng(0)
    parts = []
    for window in Tiles(640).grid(20_000, 20_000):
        low = rng.uniform(0, 600, (20, 2))
        parts.append(
            (
                Letterbox(window, (640, 640)),
                Detections(np.concatenate([low, low + 30], 1), rng.random(20), np.zeros(20, np.int64)),
            )
        )
    began = time.process_time()
    found = merge_tiles(parts, (20_000, 20_000))
    assert time.process_time() - began < 10
    assert 20_000 < len(found.boxes) < len(parts) * 20


def large(folder: Path, count: int) -> tuple[ImageIndex, Labels]:
    """Images of 900×700 with ten small objects in one corner."""
    files = []
    for number in range(count):
        pixels = scene(900, 700, number)
        Image.fromarray(pixels).save(folder / f"{number}.jpg")
        files.append(str(folder / f"{number}.jpg"))
    boxes = np.array([[20 * n, 30, 20 * n + 12, 42] for n in range(10)] * count, np.float32)
    labels = Labels(("thing",), np.zeros(10 * count, np.int32), boxes, np.arange(count + 1) * 10)
    return ImageIndex.of(files), labels


def test_training_windows_are_balanced_over_objects_and_background(tmp_path: Path) -> None:
    index, labels = large(tmp_path, 2)
    builder = TileSamples(index, labels, Tiles(128), each=10, objects=0.6)
    windows = builder.windows(0)
    full = [window for window in windows if len(clip_boxes(labels.of(0)[1], window, 1.0)[1])]
    assert 6 <= len(full) < 10
    assert builder.windows(7) == windows
    assert builder.windows(10) != windows
    assert all(window.size == (128, 128) and window.right <= 900 and window.bottom <= 700 for window in windows)


def test_images_are_drawn_from_as_often_as_asked_and_windows_zoom(tmp_path: Path) -> None:
    index, labels = large(tmp_path, 3)
    builder = TileSamples(index, labels, Tiles(128), each=4, rounds=[1, 3, 2], zoom=0.3)
    batches = TileSampler(builder, 8, (64, 64)).epoch(1)
    samples = np.concatenate([planned.indices for planned in batches])
    assert sorted(samples.tolist()) == list(range(24, 48))
    assert np.bincount([builder.image_of(sample) for sample in samples.tolist()]).tolist() == [4, 12, 8]
    sides = {window.size[0] for sample in samples.tolist() for window in builder.windows(sample)}
    assert 98 <= min(sides) < 115
    assert 140 < max(sides) <= 183
    shares = [TileSampler(builder, 4, (64, 64), rank=rank, world_size=2).epoch(0) for rank in range(2)]
    mine, theirs = (set(np.concatenate([one.indices for one in share]).tolist()) for share in shares)
    assert not mine & theirs
    assert len(mine | theirs) == 24


def test_windows_beside_each_other_share_the_rows_of_a_jpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(scene(900, 700, 0)).save(tmp_path / "a.jpg", restart_marker_rows=1)
    index = ImageIndex.of([tmp_path / "a.jpg"])
    rows: list[tuple[int, int]] = []
    real = cut_rows

    def noting(path: str, header: Any, top: int, bottom: int) -> Any:
        rows.append((top, bottom))
        return real(path, header, top, bottom)

    monkeypatch.setattr(_decode, "cut_rows", noting)
    grid = TileGridSamples(index, Tiles(256), each=32)
    loader = Loader(index, builder=grid, sampler=grid.order(4, (256, 256)), on_error="drop", threads=1)
    whole = np.asarray(Image.open(tmp_path / "a.jpg"))
    for images, _, tiles in loader:
        for image, tile in zip(images, tiles, strict=True):
            left, top, right, bottom = tile.placed.window
            difference = image.permute(1, 2, 0).numpy().astype(int) - whole[top:bottom, left:right]
            assert np.abs(difference).mean() < 1.5
    assert len(grid) == 20
    assert len(rows) == 4


def test_windows_of_an_image_come_from_one_decoding_and_are_the_same_with_any_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, labels = large(tmp_path, 6)
    decoded: list[str] = []
    real = decode_windows

    def noting(path: str, *rest: object) -> object:
        decoded.append(Path(path).name)
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(_maker, "decode_windows", noting)
    runs = []
    for threads in (1, 3):
        decoded.clear()
        builder = TileSamples(index, labels, Tiles(128), each=5)
        loader = Loader(index, sampler=TileSampler(builder, 4, (64, 64), spread=2), builder=builder, threads=threads)
        batches = list(loader)
        runs.append([(batch.indices.tolist(), int(batch.images.long().sum())) for batch in batches])
        assert sorted(decoded) == [f"{number}.jpg" for number in range(6)]
        targets: list[BoxTarget] = [target for batch in batches for target in batch.targets]
        assert len(targets) == 30
        assert sorted({target.index for target in targets}) == list(range(6))
        some = next(target for target in targets if len(target.boxes))
        assert some.boxes.min() >= 0
        assert some.boxes.max() <= 64
    assert runs[0] == runs[1]


def test_an_image_whose_windows_break_is_named(tmp_path: Path) -> None:
    index, labels = large(tmp_path, 3)
    builder = TileSamples(index, labels, Tiles(128), each=2)
    loader = Loader(index, sampler=TileSampler(builder, 2, (64, 64)), builder=builder)
    Path(index.path(1)).unlink()
    assert len(list(loader)) == 3
    assert [Path(skipped.path).name for skipped in loader.skipped()] == ["1.jpg"]


def test_a_large_image_is_searched_window_by_window_and_stitched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detector that finds pure red finds every red square of an image once, wherever windows cut it."""
    rng = np.random.default_rng(3)
    pixels = np.full((1500, 2000, 3), 128, np.uint8)
    corners = [(x * 100 + int(rng.integers(40)), y * 100 + int(rng.integers(40))) for x in range(20) for y in range(15)]
    corners = [corners[number] for number in rng.permutation(len(corners))[:40]]
    for left, top in corners:
        pixels[top : top + 24, left : left + 24] = (255, 0, 0)
    Image.fromarray(pixels).save(tmp_path / "large.png")
    index = ImageIndex.of([tmp_path / "large.png"])
    decoded: list[object] = []

    def noting(*rest: Any) -> object:
        decoded.append(rest)
        return decode_windows(*rest)

    monkeypatch.setattr(_maker, "decode_windows", noting)
    grid = TileGridSamples(index, Tiles(512, 0.2))
    parts = []
    for images, _, tiles in Loader(index, builder=grid, sampler=grid.order(4, (512, 512)), on_error="drop"):
        for image, tile in zip(images, tiles, strict=True):
            parts.append((tile.placed, red_squares(image.permute(1, 2, 0).numpy())))
    assert len(parts) == len(grid) == 20
    assert len(decoded) == 3  # eight windows a decoding
    found = merge_tiles(parts, (2000, 1500))
    assert sorted((round(left), round(top)) for left, top, _, _ in found.boxes) == sorted(corners)


def red_squares(pixels: NDArray[np.uint8]) -> Detections:
    """Boxes of what is red, whole or cut by the border."""
    red = (pixels[..., 0] == 255) & (pixels[..., 1] == 0)
    boxes = []
    while red.any():
        top, left = np.argwhere(red)[0]
        bottom = top + int(np.argmin(np.append(red[top:, left], False)))
        right = left + int(np.argmin(np.append(red[top, left:], False)))
        red[top:bottom, left:right] = False
        boxes.append((left, top, right, bottom))
    return Detections(np.array(boxes, float).reshape(-1, 4), np.full(len(boxes), 0.9), np.zeros(len(boxes), np.int64))


def test_images_smaller_than_a_window_are_one_window(tmp_path: Path) -> None:
    index = ImageIndex.of(photos(tmp_path, 1))
    labels = Labels(("thing",), np.zeros(0, np.int32), np.zeros((0, 4), np.float32), np.zeros(2, np.int64))
    assert TileSamples(index, labels, Tiles(128), each=1).windows(0) == [Window(0, 0, 96, 64)]
