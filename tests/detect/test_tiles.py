"""Large images by windows: trained on, validated, searched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from oomph.cli import run
from oomph.data import Tiles
from oomph.detect import (
    Augmentation,
    LabelTable,
    Material,
    OrderForm,
    Suppression,
    find_objects,
    plainly,
    prepare,
    read_dataset,
    read_settings,
    read_split,
    save_weights,
    score,
    train,
    validate,
    validation_loader,
    yolov5,
)
from oomph.detect.dataset._tiles import proposal, window_loader
from oomph.detect.training._dist import Ranks
from oomph.errors import UsageError
from oomph.units import MIB

from .test_course import Quiet

WIDE, TALL = 1024, 704  # a view of 992 has a frame of this size, so that whole images are not scaled
SIDE = 24
PLAIN = Augmentation(mosaic=0, hue=0, saturation=0, value=0, scale=0.4, flip_horizontal=0.5, flip_vertical=0.5)


def write_scene(folder: Path, split: str, count: int) -> None:
    """Grey images with red squares, in a grid of places that windows cut anywhere."""
    (folder / "images" / split).mkdir(parents=True)
    (folder / "labels" / split).mkdir(parents=True)
    for number in range(count):
        rng = np.random.default_rng([count, number])
        pixels = np.full((TALL, WIDE, 3), 128, np.uint8)
        places = rng.permutation((WIDE // 50) * (TALL // 50))[:25]
        rows = []
        for place in places.tolist():
            left, top = place % (WIDE // 50) * 50 + rng.integers(20), place // (WIDE // 50) * 50 + rng.integers(20)
            pixels[top : top + SIDE, left : left + SIDE] = (255, 0, 0)
            middle = f"{(left + SIDE / 2) / WIDE:.7f} {(top + SIDE / 2) / TALL:.7f}"
            rows.append(f"0 {middle} {SIDE / WIDE:.7f} {SIDE / TALL:.7f}\n")
        Image.fromarray(pixels).save(folder / "images" / split / f"{number}.png", compress_level=1)
        (folder / "labels" / split / f"{number}.txt").write_text("".join(rows))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squares")
    write_scene(folder, "train", 3)
    write_scene(folder, "val", 2)
    (folder / "data.yaml").write_text("path: .\ntrain: images/train\nval: images/val\nnames: [square]\n")
    return folder / "data.yaml"


def material(data: Path, split: str) -> Material:
    return prepare(read_split(read_dataset(data), split))


class Reds(nn.Module):
    """Finds every red square of an image, whole or cut by its border, and is sure of it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> tuple[Tensor]:
        rows = torch.zeros(len(images), 200, 6)
        for at, image in enumerate(images):
            boxes = squares(image.permute(1, 2, 0).numpy())
            for number, (left, top, right, bottom) in enumerate(boxes):
                box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
                rows[at, number] = torch.tensor([*box, 0.9, 1.0])
        return (rows,)


def squares(pixels: NDArray[np.uint8]) -> list[tuple[int, int, int, int]]:
    red = (pixels[..., 0] > 200) & (pixels[..., 1] < 60)
    found = []
    while red.any():
        top, left = (int(value) for value in np.argwhere(red)[0])
        bottom = top + int(np.argmin(np.append(red[top:, left], False)))
        right = left + int(np.argmin(np.append(red[top, left:], False)))
        red[top:bottom, left:right] = False
        found.append((left, top, right, bottom))
    return found


def test_windows_put_together_find_what_the_whole_image_shows(data: Path) -> None:
    held = material(data, "val")
    limits = Suppression(confidence=0.5, overlap=0.9)
    with validation_loader(held, 1024, 1) as whole, validation_loader(held, 256, 4, tiles=Tiles(256)) as cut:
        wholly = validate(Reds(), held, whole, plainly, limits)
        parts = validate(Reds(), held, cut, plainly, limits)
    assert len(wholly) == len(parts) == 2
    for one, other in zip(wholly, parts, strict=True):
        assert len(one.found) == len(other.found) == len(other.truth) == 25
        ours, theirs = (rows[np.lexsort(rows[:, :2].round().T)] for rows in (other.found, other.truth[:, 1:]))
        assert np.abs(ours[:, :4] - theirs).max() < 0.01
        assert np.array_equal(one.truth, other.truth)
    assert score(parts, ["square"]).map50_95 == pytest.approx(1, abs=1e-6)


class Undecided(Reds):
    """Says another class for all squares of every second window that it is shown."""

    shown = 0

    def forward(self, images: Tensor) -> tuple[Tensor]:
        (rows,) = super().forward(images)
        found = torch.cat((rows, torch.zeros(len(images), 200, 1)), 2)
        for at in range(len(images)):
            if (self.shown + at) % 2:
                found[at, :, 5:] = found[at, :, 5:].flip(1)
        self.shown += len(images)
        return (found,)


def test_across_classes_means_across_windows_too(data: Path) -> None:
    held, counts = material(data, "val"), []
    for across in (True, False):
        with validation_loader(held, 256, 4, tiles=Tiles(256)) as loader:
            limits = Suppression(confidence=0.5, overlap=0.9, across_classes=across)
            counts.append([len(one.found) for one in validate(Undecided(), held, loader, plainly, limits)])
    assert counts[0] == [25, 25]
    assert min(counts[1]) > 25


def test_ranks_share_images_and_never_windows_of_one(data: Path) -> None:
    held = material(data, "val")
    found = []
    for rank in range(2):
        with validation_loader(held, 256, 4, tiles=Tiles(256), ranks=Ranks(rank, 2)) as loader:
            found.append(validate(Reds(), held, loader, plainly, Suppression(confidence=0.5, overlap=0.9)))
    assert [len(share) for share in found] == [1, 1]
    assert all(len(share[0].found) == 25 for share in found)


def test_labels_of_training_windows_lie_on_their_objects(data: Path) -> None:
    training = material(data, "train")
    with window_loader(training, Tiles(160), 160, 8, PLAIN, threads=2) as loader:
        batches = list(loader)
    images = torch.cat([batch.images for batch in batches])
    assert len(images) == 3 * 40  # 35 windows cover an image, and eight are drawn together
    shown, empty = 0, 0
    for batch in batches:
        for at, image in enumerate(batch.images):
            rows = batch.targets[batch.targets[:, 0] == at].numpy()
            red = np.asarray((image[0] > 180) & (image[1] < 90))
            empty += not len(rows)
            for _, _, x, y, wide, high in rows:
                left, right = round(float(x - wide / 2) * 160), round(float(x + wide / 2) * 160)
                top, bottom = round(float(y - high / 2) * 160), round(float(y + high / 2) * 160)
                inner = red[top + 2 : bottom - 2, left + 2 : right - 2]
                assert inner.all()
                shown += 1
                red[max(top - 2, 0) : bottom + 2, max(left - 2, 0) : right + 2] = False
            assert red.sum() < 250  # nothing is left but parts of which less than a third is visible
    assert shown > 150
    assert empty > 2


def test_the_order_of_windows_goes_on_where_it_was_left(data: Path) -> None:
    training = material(data, "train")

    def fresh() -> Any:
        return window_loader(training, Tiles(160), 160, 8, PLAIN, threads=1)

    with fresh() as loader, fresh() as again:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [int(batch.images.long().sum()) for batch in batches]
        again.load_state_dict(state)
        assert [int(batch.images.long().sum()) for batch in again] == rest
        assert [int(batch.images.long().sum()) for batch in loader][1:] != rest  # the next epoch has other windows


def test_more_boxes_than_the_usual_most_are_scored() -> None:
    places = np.stack(np.meshgrid(np.arange(30), np.arange(20)), -1).reshape(-1, 2) * 100.0
    boxes = np.concatenate((places, places + 30), 1).astype(np.float32)
    from oomph.detect import ImageResult

    found = np.column_stack((boxes, np.full(600, 0.9), np.zeros(600))).astype(np.float32)
    truth = np.column_stack((np.zeros(600), boxes)).astype(np.float32)
    assert score([ImageResult(found, truth)], ["thing"]).map50 == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("size", "proposed"), [(640, True), (64, True), (4000, False)])
def test_tiles_are_proposed_where_objects_would_vanish(data: Path, size: int, *, proposed: bool) -> None:
    training = material(data, "train")
    shapes = tuple((20_000, 20_000) for _ in training.shapes)
    rows = training.labels.boxes.copy()
    rows[:, 3:] = 30 / 20_000
    huge = Material(training.index, LabelTable(rows, training.labels.starts), shapes, ())
    assert (proposal(huge, size) is not None) == (proposed or 30 * size / 20_000 < 8)
    assert proposal(training, 640) is None


def test_tiles_that_are_too_small_are_one_sentence(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tiles of 16 pixels"):
        OrderForm(data=data, folder=tmp_path, tiles=16)


@pytest.mark.parametrize(("line", "value"), [("tiles: 512", 512), ("tiles: true", True), ("tiles: false", False)])
def test_a_line_of_the_settings_file_turns_tiles_on(data: Path, tmp_path: Path, line: str, *, value: object) -> None:
    (tmp_path / "settings.yaml").write_text(line)
    form, _ = read_settings(tmp_path / "settings.yaml", OrderForm(data=data, folder=tmp_path))
    assert form.tiles == value


def test_training_by_tiles_and_detecting_by_tiles(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teller = Quiet()
    asked = {"network": "n", "size": 64, "batch": 8, "epochs": 1, "device": "cpu", "threads": 1}
    form = OrderForm(data=data, folder=tmp_path / "run", tiles=256, **asked)  # type: ignore[arg-type]
    train(form, teller)
    assert teller.rows[0]["map50"] is not None
    assert not any("squeezed" in words for words in teller.words)
    assert (tmp_path / "run" / "val_predictions.png").exists()
    weights = tmp_path / "run" / "weights" / "last.pt"
    images = data.parent / "images" / "val"
    usual: dict[str, Any] = {"size": 64, "limits": Suppression(0.001, 0.5), "device": "cpu"}
    by_tiles = find_objects(weights, images, tmp_path / "tiles", tiles=256, **usual)
    assert len(by_tiles.images) == 2
    assert by_tiles.advice is None
    assert all(len(one.boxes) > 300 for one in by_tiles.images)  # each window may have as many as an image
    corners = np.array([box[:4] for box in by_tiles.images[0].boxes])
    assert corners.min() >= 0
    assert corners[:, 2].max() <= WIDE
    assert corners[:, 3].max() <= TALL
    small = ["--weights", str(weights), "--img", "64", "--device", "cpu"]
    assert run(["detect", str(images), *small, "--out", str(tmp_path / "whole")]) == 0
    assert "2 images are more than four times as large as 64 pixels: --tiles 64" in capsys.readouterr().out
    assert run(["val", "--data", str(data), *small, "--tiles", "256", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["images"], told["boxes"]) == (2, 50)
    assert told["map50"] == pytest.approx(teller.rows[0]["map50"], abs=0.05)


HUGE = 20_000


def test_a_huge_image_is_searched_and_drawn_in_little_memory(tmp_path: Path) -> None:
    """400 megapixels, 1.1 GiB as bytes, searched and drawn with less than 320 MiB on top of what a small one takes."""
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    tile = np.random.default_rng(0).integers(0, 255, (512, 512, 3), np.uint8)
    across = -(-HUGE // 512)
    tifffile.imwrite(
        tmp_path / "huge.tif",
        (tile if number % 31 == 0 else None for number in range(across * across)),
        shape=(HUGE, HUGE, 3),
        dtype=np.uint8,
        tile=(512, 512),
        photometric="rgb",
        compression="deflate",
    )
    torch.manual_seed(0)
    save_weights(tmp_path / "n.pt", yolov5("n", 1), ("thing",), {})
    code = f"""
import sys
from pathlib import Path
import numpy as np, torch
from PIL import Image
torch.set_num_threads(1)
from oomph.detect import Suppression, find_objects
from oomph.machine import peak_rss_bytes
here = Path({str(tmp_path)!r})
usual = dict(size=64, limits=Suppression(0.3, 0.5), device="cpu")
Image.fromarray(np.zeros((1300, 1300, 3), np.uint8)).save(here / "small.png")
find_objects(here / "n.pt", here / "small.png", here / "out", tiles=1250, **usual)
before = peak_rss_bytes()
found = find_objects(here / "n.pt", here / "huge.tif", here / "out", tiles=1250, **usual)
assert len(found.images) == 1 and not found.set_aside
print(peak_rss_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 320 * MIB
    with Image.open(tmp_path / "out" / "huge.jpg") as picture:
        assert 1024 <= max(picture.size) <= 2560
