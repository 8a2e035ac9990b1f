from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from oomph.data import Detections, ImageIndex, Loader, TileGridSamples, Tiles, decode_windows, merge_tiles
from oomph.data.decoding import _decode
from oomph.data.decoding._jpeg_rows import cut_rows
from oomph.data.loader import _sample_maker

from ..images import scene


def test_adjacent_windows_share_the_rows_of_a_jpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(scene(900, 700, 0)).save(tmp_path / "a.jpg", restart_marker_rows=1)
    index = ImageIndex.of([tmp_path / "a.jpg"])
    rows: list[tuple[int, int]] = []

    def recording(path: str, header: Any, top: int, bottom: int) -> Any:
        rows.append((top, bottom))
        return cut_rows(path, header, top, bottom)

    monkeypatch.setattr(_decode, "cut_rows", recording)
    grid = TileGridSamples(index, Tiles(256), group=32)
    loader = Loader(index, builder=grid, sampler=grid.sampler(4, (256, 256)), on_error="drop", threads=1)
    whole = np.asarray(Image.open(tmp_path / "a.jpg"))
    for images, _, tiles in loader:
        for image, tile in zip(images, tiles, strict=True):
            left, top, right, bottom = tile.letterbox.window
            difference = image.permute(1, 2, 0).numpy().astype(int) - whole[top:bottom, left:right]
            assert np.abs(difference).mean() < 1.5
    assert len(grid) == 20
    assert len(rows) == 4


def detect_red(pixels: NDArray[np.uint8]) -> Detections:
    """Return the boxes of red squares, whole or cut by the border."""
    red = (pixels[..., 0] == 255) & (pixels[..., 1] == 0)
    boxes = []
    while red.any():
        top, left = np.argwhere(red)[0]
        bottom = top + int(np.argmin(np.append(red[top:, left], False)))
        right = left + int(np.argmin(np.append(red[top, left:], False)))
        red[top:bottom, left:right] = False
        boxes.append((left, top, right, bottom))
    return Detections(np.array(boxes, float).reshape(-1, 4), np.full(len(boxes), 0.9), np.zeros(len(boxes), np.int64))


@pytest.mark.medium
def test_objects_of_a_large_image_are_detected_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    pixels = np.full((1500, 2000, 3), 128, np.uint8)
    corners = [(x * 100 + int(rng.integers(40)), y * 100 + int(rng.integers(40))) for x in range(20) for y in range(15)]
    corners = [corners[number] for number in rng.permutation(len(corners))[:40]]
    for left, top in corners:
        pixels[top : top + 24, left : left + 24] = (255, 0, 0)
    Image.fromarray(pixels).save(tmp_path / "large.png")
    index = ImageIndex.of([tmp_path / "large.png"])
    decoded: list[object] = []

    def recording(*rest: Any) -> object:
        decoded.append(rest)
        return decode_windows(*rest)

    monkeypatch.setattr(_sample_maker, "decode_windows", recording)
    grid = TileGridSamples(index, Tiles(512, 0.2))
    parts = []
    for images, _, tiles in Loader(index, builder=grid, sampler=grid.sampler(4, (512, 512)), on_error="drop"):
        for image, tile in zip(images, tiles, strict=True):
            parts.append((tile.letterbox, detect_red(image.permute(1, 2, 0).numpy())))
    assert len(parts) == len(grid) == 20
    assert len(decoded) == 3  # eight windows per decoding
    merged = merge_tiles(parts, (2000, 1500))
    assert sorted((round(left), round(top)) for left, top, _, _ in merged.boxes) == sorted(corners)
