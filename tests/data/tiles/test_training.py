from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oomph.data import (
    BoxTarget,
    ImageIndex,
    Labels,
    Loader,
    TileDraws,
    Tiles,
    TileSampler,
    TileSamples,
    Window,
    clip_boxes,
    decode_windows,
)
from oomph.data.loader import _sample_maker

from ..images import save_photos, scene


def large_images(folder: Path, count: int) -> tuple[ImageIndex, Labels]:
    """Save images of 900×700 with ten small objects in one corner."""
    files = []
    for number in range(count):
        Image.fromarray(scene(900, 700, number)).save(folder / f"{number}.jpg")
        files.append(str(folder / f"{number}.jpg"))
    boxes = np.array([[20 * n, 30, 20 * n + 12, 42] for n in range(10)] * count, np.float32)
    labels = Labels(("thing",), np.zeros(10 * count, np.int32), boxes, np.arange(count + 1) * 10)
    return ImageIndex.of(files), labels


def test_windows_are_balanced_between_objects_and_background(tmp_path: Path) -> None:
    index, labels = large_images(tmp_path, 2)
    builder = TileSamples(index, labels, Tiles(128), TileDraws(windows_per_draw=10, object_fraction=0.6))
    windows = builder.windows(0)
    with_object = [window for window in windows if len(clip_boxes(labels.of(0)[1], window, 1.0)[1])]
    assert 6 <= len(with_object) < 10
    assert builder.windows(7) == windows
    assert builder.windows(10) != windows
    assert all(window.size == (128, 128) and window.right <= 900 and window.bottom <= 700 for window in windows)


def test_draws_per_image_and_zoom(tmp_path: Path) -> None:
    index, labels = large_images(tmp_path, 3)
    draws = TileDraws(windows_per_draw=4, draws_per_image=[1, 3, 2], zoom=0.3)
    builder = TileSamples(index, labels, Tiles(128), draws)
    batches = TileSampler(builder, 8, (64, 64)).epoch(1)
    samples = np.concatenate([batch.indices for batch in batches])
    assert sorted(samples.tolist()) == list(range(24, 48))
    assert np.bincount([builder.image_of(sample) for sample in samples.tolist()]).tolist() == [4, 12, 8]
    sides = {window.size[0] for sample in samples.tolist() for window in builder.windows(sample)}
    assert 98 <= min(sides) < 115
    assert 140 < max(sides) <= 183


def test_ranks_share_the_draws(tmp_path: Path) -> None:
    index, labels = large_images(tmp_path, 3)
    draws = TileDraws(windows_per_draw=4, draws_per_image=[1, 3, 2])
    builder = TileSamples(index, labels, Tiles(128), draws)
    epochs = [TileSampler(builder, 4, (64, 64), rank=rank, world_size=2).epoch(0) for rank in range(2)]
    first, second = (set(np.concatenate([batch.indices for batch in epoch]).tolist()) for epoch in epochs)
    assert not first & second
    assert len(first | second) == 24


@pytest.mark.medium
def test_windows_of_a_draw_share_a_decoding_with_any_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, labels = large_images(tmp_path, 6)
    decoded: list[str] = []

    def recording(path: str, *rest: object) -> object:
        decoded.append(Path(path).name)
        return decode_windows(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(_sample_maker, "decode_windows", recording)
    runs = []
    for threads in (1, 3):
        decoded.clear()
        builder = TileSamples(index, labels, Tiles(128), TileDraws(windows_per_draw=5))
        loader = Loader(index, sampler=TileSampler(builder, 4, (64, 64), spread=2), builder=builder, threads=threads)
        batches = list(loader)
        runs.append([(batch.indices.tolist(), int(batch.images.long().sum())) for batch in batches])
        assert sorted(decoded) == [f"{number}.jpg" for number in range(6)]
        targets: list[BoxTarget] = [target for batch in batches for target in batch.targets]
        assert len(targets) == 30
        assert sorted({target.index for target in targets}) == list(range(6))
        with_boxes = next(target for target in targets if len(target.boxes))
        assert with_boxes.boxes.min() >= 0
        assert with_boxes.boxes.max() <= 64
    assert runs[0] == runs[1]


def test_image_with_unreadable_windows_is_skipped(tmp_path: Path) -> None:
    index, labels = large_images(tmp_path, 3)
    builder = TileSamples(index, labels, Tiles(128), TileDraws(windows_per_draw=2))
    loader = Loader(index, sampler=TileSampler(builder, 2, (64, 64)), builder=builder)
    Path(index.path(1)).unlink()
    assert len(list(loader)) == 3
    assert [Path(skipped.path).name for skipped in loader.skipped()] == ["1.jpg"]


def test_image_smaller_than_a_window_is_one_window(tmp_path: Path) -> None:
    index = ImageIndex.of(save_photos(tmp_path, 1))
    labels = Labels(("thing",), np.zeros(0, np.int32), np.zeros((0, 4), np.float32), np.zeros(2, np.int64))
    builder = TileSamples(index, labels, Tiles(128), TileDraws(windows_per_draw=1))
    assert builder.windows(0) == [Window(0, 0, 96, 64)]
