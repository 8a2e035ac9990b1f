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
def working_folder(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("n.pt").symlink_to(weights)


def write_image(file: str) -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path)
    return path


def detect(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["detect", *SMALL, *arguments, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def rejected(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["detect", *SMALL, *arguments]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message


@pytest.mark.medium
def test_images_and_labels_are_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    photo = write_image("photos/a.jpg").read_bytes()
    assert "the output folder 'photos' contains the source images" in rejected(capsys, "photos", "--out", "photos")
    assert Path("photos/a.jpg").read_bytes() == photo
    write_image("others/b.png")
    Path("others/b.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    assert "the output folder 'others' contains the source images" in rejected(capsys, "others", "--out", "others")
    assert Path("others/b.txt").read_text() == "0 0.5 0.5 0.1 0.1\n"
    assert not Path("others/b.jpg").exists()
    Path("out").mkdir()
    Path("out/a.jpg").symlink_to(Path("photos/a.jpg").resolve())
    assert "would overwrite 'out/a.jpg'" in rejected(capsys, "photos", "--out", "out")


@pytest.mark.medium
def test_outputs_are_replaced_unless_they_were_modified(capsys: pytest.CaptureFixture[str]) -> None:
    write_image("photos/a.png")
    for _ in range(2):  # the second call must not search the outputs of the first
        result = detect(capsys, "photos", "--out", "photos/found")
        assert [image["image"] for image in result["images"]] == ["photos/a.png"]
    time.sleep(0.01)
    Path("photos/found/a.txt").write_text("mine")
    assert "would overwrite 'photos/found/a.txt'" in rejected(capsys, "photos/a.png", "--out", "photos/found")
    assert Path("photos/found/a.txt").read_text() == "mine"


@pytest.mark.medium
def test_images_of_the_same_name_have_separate_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a/x.png", "a/x.jpg", "a/x.png.png", "b/x.png", "y.png"):
        write_image(f"photos/{name}")
    drawings = {image["image"]: image["drawing"] for image in detect(capsys, "photos")["images"]}
    assert drawings == {
        "photos/a/x.jpg": "runs/detect/exp/a/x.jpg.jpg",
        "photos/a/x.png": "runs/detect/exp/a/x.png.jpg",
        "photos/a/x.png.png": "runs/detect/exp/a/x.png.png.jpg",
        "photos/b/x.png": "runs/detect/exp/b/x.jpg",
        "photos/y.png": "runs/detect/exp/y.jpg",
    }
    assert all(Path(path).exists() and Path(path).with_suffix(".txt").exists() for path in drawings.values())
    images = detect(capsys, "photos/a/x.png", "photos/b/x.png")["images"]
    assert [image["drawing"] for image in images] == ["runs/detect/exp2/a/x.jpg", "runs/detect/exp2/b/x.jpg"]


@pytest.mark.medium
def test_files_patterns_lists_and_source_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(write_image(f"photos/{name}.jpg")) for name in "abc"]
    Path("photos/list.txt").write_text("# two\na.jpg\n\nphotos/b.jpg\n")
    for arguments, count in (
        (names, 3),
        (["photos/*.jpg"], 3),
        (["photos/[ab].jpg", "photos/c.jpg", "photos/a.jpg"], 3),
        (["photos/list.txt"], 2),
        (["--source", "phot*"], 3),
    ):
        assert len(detect(capsys, *arguments)["images"]) == count


@pytest.mark.medium
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("https://host/a.jpg", "'https://host/a.jpg' is a URL, and oomph downloads nothing"),
        ("0", "'0' is a camera"),
        ("clip.mp4", "'clip.mp4' is a video"),
        ("nothere", "there is no image or folder 'nothere'"),
        ("none/*.jpg", "there is no image or folder 'none/*.jpg'"),
        ("empty", "there are no images in empty"),
        ("empty.txt", "empty.txt lists no images"),
        ("list.txt", "there is no image 'gone.jpg', which list.txt lists"),
    ],
)
def test_other_sources_are_rejected(source: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    Path("empty.txt").touch()
    Path("list.txt").write_text("gone.jpg\n")
    assert message in rejected(capsys, source)
    assert not Path("runs/detect/exp").exists()


@pytest.mark.medium
def test_invalid_flags_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    write_image("a.png")
    Path("file").touch()
    assert "the image size is 1; use at least 32" in rejected(capsys, "a.png", "--img", "1")
    assert "--conf-thres is 2.0" in rejected(capsys, "a.png", "--conf-thres", "2")
    assert "--max-det is 0; use at least 1" in rejected(capsys, "a.png", "--max-det", "0")
    assert "--classes is 'a'; pass class numbers" in rejected(capsys, "a.png", "--classes", "a")
    assert "the folder 'file/out' can't be created" in rejected(capsys, "a.png", "--out", "file/out")
    assert "no images are given" in rejected(capsys)
