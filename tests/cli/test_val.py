"""The command line of scoring."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from oomph.cli import run
from oomph.detect import EmbeddedSize, save_weights, write_embedded, yolov5

SMALL = ["--data", "data/data.yaml", "--img", "64", "--device", "cpu"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_embedded(Path("data"), EmbeddedSize(train=2, val=4))
    torch.manual_seed(0)


def test_weights_of_one_class_are_scored_with_all_classes_taken_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    save_weights(Path("one.pt"), yolov5("n", 1), ("item",), {})
    assert run(["val", "--weights", "one.pt", *SMALL]) == 0
    told = capsys.readouterr().out
    assert "the weights know one class: the 4 classes of data/data.yaml are taken for one" in told
    assert run(["val", "--weights", "one.pt", *SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["by_class"]] == ["item"]
    assert found["by_class"][0]["boxes"] == found["boxes"] > 4
    save_weights(Path("two.pt"), yolov5("n", 2), ("a", "b"), {})
    assert run(["val", "--weights", "two.pt", *SMALL]) == 2
    assert "the weights know 2 classes and data/data.yaml has 4" in capsys.readouterr().err


def test_what_was_set_aside_and_what_happens_instead_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    save_weights(Path("n.pt"), yolov5("n", 4), list("abcd"), {})
    label = min(Path("data/labels/val").glob("*.txt"))
    label.write_text(label.read_text() + "9 0.5 0.5 0.1 0.1\n")
    assert run(["val", "--weights", "n.pt", *SMALL, "--verbose", "--iou-thres", "0.5"]) == 0
    told = capsys.readouterr().out
    assert "val: 1 box set aside: of a class that isn't one of 0 to 3" in told
    assert "--verbose: scores by class are always told" in told
    assert run(["val", "--weights", "n.pt", *SMALL, "--json"]) == 0
    assert "val: 1 box set aside" in json.loads(capsys.readouterr().out)["notes"][0]
    assert run(["val", "--weights", "n.pt", *SMALL, "--conf-thres", "3"]) == 2
    assert "--conf-thres is 3.0; it must be between 0 and 1" in capsys.readouterr().err
