from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from oomph.cli import run
from oomph.detect import DemoSize, save_weights, write_demo_dataset, yolov5

FLAGS = ["--data", "data/data.yaml", "--img", "64"]


@pytest.fixture(autouse=True)
def demo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_demo_dataset(Path("data"), DemoSize(train=2, val=2))
    torch.manual_seed(0)
    for name in ("a.pt", "b.pt"):
        save_weights(Path(name), yolov5("n", 4), list("abcd"))


def error_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["shrink", "compare", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.medium
@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a.pt"], "there is nothing to compare with a.pt; pass several files"),
        (["a.pt", "no.pt"], "there is no file 'no.pt'; check the path"),
        (["a.pt", "other.pt"], "the tensors in other.pt are not those of YOLOv5"),
        (["a.pt", "text.pt"], "text.pt is not in the zip format"),
        (["a.pt", "two.pt"], "two.pt has 2 classes and a.pt has 4; compare detectors of the same classes"),
        (["two.pt", "two-b.pt"], "the detectors have 2 classes and data/data.yaml has 4; use the data"),
        (["a.pt", "b.pt", "a.pt"], "a.pt is passed twice; pass each file once"),
        (["a.pt", "b.pt", "./data/../b.pt"], "data/../b.pt is passed also as b.pt; pass each file once"),
    ],
)
def test_files_that_cannot_be_compared_are_one_sentence(
    files: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"weight": torch.zeros(3)}, "other.pt")
    Path("text.pt").write_text("hello")
    for name in ("two.pt", "two-b.pt"):
        save_weights(Path(name), yolov5("n", 2), list("ab"))
    assert message in error_of([*files, *FLAGS], capsys)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data", "no.yaml"], "no.yaml"),
        (["--img", "8"], "the image size is 8; use at least 32"),
        (["--batch", "0"], "batch is 0; use at least 1"),
        (["--gpu", "RTX 9999999"], "RTX 9999999"),
        (["--max-loss", "-1"], "--max-loss is -1; use a number of points from 0"),
        (["--max-loss", "nan"], "--max-loss is nan"),
        (["--max-latency", "0"], "--max-latency is 0; use a number of milliseconds above 0"),
        (["--max-memory", "much"], "'much' is not a size"),
        (["--max-memory", "0"], "--max-memory is 0; use a size above 0"),
        (["--plot", "plot.pdf"], "--plot is 'plot.pdf'; use a name that ends in .png"),
        (["--plot", "no/plot.png"], "'no/plot.png' can't be written; pass a file in an existing folder"),
    ],
)
def test_wrong_flags_are_one_sentence(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in error_of(["a.pt", "b.pt", *FLAGS, *flags], capsys)


@pytest.mark.large
def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*FLAGS, "--gpu", "cpu", "--batch", "2", "--max-latency", "100", "--max-memory", "1GiB", "--plot", "x.png"]
    assert run(["shrink", "compare", "a.pt", "b.pt", *flags, "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.err == ""
    assert [variant["file"] for variant in document["variants"]] == ["a.pt", "b.pt"]
    assert document["variants"][0]["training"]["batch"] == 2
    with Image.open("x.png") as image:
        assert image.size == (1600, 500)
