"""The command line of detecting: what is looked at, where results go, and that nothing is lost on the way."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from oomph.cli import run
from oomph.detect import save_weights, yolov5

SMALL = ["--weights", "n.pt", "--img", "64", "--device", "cpu"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "n.pt"
    torch.manual_seed(0)
    save_weights(file, yolov5("n", 2), ("cat", "dog"), {})
    return file


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("n.pt").symlink_to(weights)


def picture(file: str) -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path)
    return path


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["detect", *SMALL, *arguments, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["detect", *SMALL, *arguments]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


def test_photos_and_labels_are_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    photo = picture("photos/a.jpg").read_bytes()
    assert "would lie among the images in 'photos'" in refused(capsys, "photos", "--out", "photos")
    assert Path("photos/a.jpg").read_bytes() == photo
    picture("others/b.png")
    Path("others/b.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    assert "would lie among the images in 'others'" in refused(capsys, "others", "--out", "others")
    assert Path("others/b.txt").read_text() == "0 0.5 0.5 0.1 0.1\n"
    assert not Path("others/b.jpg").exists()
    Path("out").mkdir()
    Path("out/a.jpg").symlink_to(Path("photos/a.jpg").resolve())
    assert "would overwrite 'out/a.jpg'" in refused(capsys, "photos", "--out", "out")


def test_results_may_be_replaced_until_somebody_touches_them(capsys: pytest.CaptureFixture[str]) -> None:
    picture("photos/a.png")
    for _ in range(2):  # the second time the pictures of the first are no photos
        told = found(capsys, "photos", "--out", "photos/found")
        assert [one["image"] for one in told["images"]] == ["photos/a.png"]
    time.sleep(0.01)
    Path("photos/found/a.txt").write_text("mine")
    assert "would overwrite 'photos/found/a.txt'" in refused(capsys, "photos/a.png", "--out", "photos/found")
    assert Path("photos/found/a.txt").read_text() == "mine"


def test_images_of_one_name_have_results_each(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a/x.png", "a/x.jpg", "a/x.png.png", "b/x.png", "y.png"):
        picture(f"photos/{name}")
    told = found(capsys, "photos")
    places = {one["image"]: one["picture"] for one in told["images"]}
    assert places == {
        "photos/a/x.jpg": "runs/detect/exp/a/x.jpg.jpg",
        "photos/a/x.png": "runs/detect/exp/a/x.png.jpg",
        "photos/a/x.png.png": "runs/detect/exp/a/x.png.png.jpg",
        "photos/b/x.png": "runs/detect/exp/b/x.jpg",
        "photos/y.png": "runs/detect/exp/y.jpg",
    }
    assert all(Path(one).exists() and Path(one).with_suffix(".txt").exists() for one in places.values())
    told = found(capsys, "photos/a/x.png", "photos/b/x.png")
    assert [one["picture"] for one in told["images"]] == ["runs/detect/exp2/a/x.jpg", "runs/detect/exp2/b/x.jpg"]


def test_many_arguments_patterns_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(picture(f"photos/{name}.jpg")) for name in "abc"]
    Path("photos/list.txt").write_text("# two\na.jpg\n\nphotos/b.jpg\n")
    for asked, count in (
        (names, 3),
        (["photos/*.jpg"], 3),
        (["photos/[ab].jpg", "photos/c.jpg", "photos/a.jpg"], 3),
        (["photos/list.txt"], 2),
        (["--source", "phot*"], 3),
    ):
        assert len(found(capsys, *asked)["images"]) == count


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("https://host/a.jpg", "'https://host/a.jpg' is an address, and oomph fetches nothing"),
        ("0", "'0' is a camera"),
        ("clip.mp4", "'clip.mp4' is a video"),
        ("nothere", "there is no image or folder 'nothere'"),
        ("none/*.jpg", "there is no image or folder 'none/*.jpg'"),
        ("empty", "there are no images in empty"),
        ("empty.txt", "empty.txt lists no images"),
        ("list.txt", "there is no image 'gone.jpg', which list.txt lists"),
    ],
)
def test_what_is_no_image_is_told_with_the_reason(source: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    Path("empty.txt").touch()
    Path("list.txt").write_text("gone.jpg\n")
    assert words in refused(capsys, source)
    assert not Path("runs/detect/exp").exists()


def test_wrong_calls_end_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    picture("a.png")
    Path("file").touch()
    assert "it must be at least 32" in refused(capsys, "a.png", "--img", "1")
    assert "--conf-thres is 2.0" in refused(capsys, "a.png", "--conf-thres", "2")
    assert "the folder 'file/out' can't be made" in refused(capsys, "a.png", "--out", "file/out")
    assert "no images are named" in refused(capsys)
