from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from oomph.cli import run
from oomph.detect import DemoSize, save_weights, write_demo_dataset, yolov5

SMALL = ["--data", "data/data.yaml", "--img", "64", "--device", "cpu"]


@pytest.fixture(autouse=True)
def demo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_demo_dataset(Path("data"), DemoSize(train=2, val=4))
    torch.manual_seed(0)


@pytest.mark.medium
def test_weights_with_one_class_are_scored_with_all_classes_merged(capsys: pytest.CaptureFixture[str]) -> None:
    save_weights(Path("one.pt"), yolov5("n", 1), ("item",), {})
    assert run(["val", "--weights", "one.pt", *SMALL]) == 0
    note = "the weights have one class: the 4 classes of data/data.yaml are merged into one"
    assert note in capsys.readouterr().out
    assert run(["val", "--weights", "one.pt", *SMALL, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in scores["by_class"]] == ["item"]
    assert scores["by_class"][0]["boxes"] == scores["boxes"] > 4


@pytest.mark.medium
def test_plots_are_written_into_a_new_folder(capsys: pytest.CaptureFixture[str]) -> None:
    save_weights(Path("n.pt"), yolov5("n", 4), list("abcd"), {})
    assert run(["val", "--weights", "n.pt", *SMALL]) == 0
    assert "plots in runs/val/exp\n" in capsys.readouterr().out
    names = {path.name for path in Path("runs/val/exp").iterdir()}
    curves = {"PR_curve.png", "F1_curve.png", "P_curve.png", "R_curve.png"}
    assert names == curves | {"confusion_matrix.png", "val_predictions.png"}
    assert all(Path("runs/val/exp", name).read_bytes().startswith(b"\x89PNG") for name in names)
    assert run(["val", "--weights", "none.pt", *SMALL, "--name", "mine"]) == 2
    assert not Path("runs/val/mine").exists()
    assert run(["val", "--weights", "n.pt", *SMALL, "--name", "a/b"]) == 2
    assert "'a/b' is not a valid run name" in capsys.readouterr().err


@pytest.mark.medium
def test_without_a_folder_for_plots_there_are_scores_and_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    save_weights(Path("n.pt"), yolov5("n", 4), list("abcd"), {})
    Path("runs").write_text("not a folder")
    assert run(["val", "--weights", "n.pt", *SMALL, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["folder"] is None
    assert scores["notes"] == ["no plots are written: 'runs/val' is not writable (Not a directory)"]
    assert scores["boxes"] > 4


@pytest.mark.medium
def test_another_number_of_classes_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    save_weights(Path("two.pt"), yolov5("n", 2), ("a", "b"), {})
    assert run(["val", "--weights", "two.pt", *SMALL]) == 2
    assert "the weights have 2 classes and data/data.yaml has 4" in capsys.readouterr().err


@pytest.mark.medium
def test_issues_of_the_data_and_ignored_flags_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    save_weights(Path("n.pt"), yolov5("n", 4), list("abcd"), {})
    label = min(Path("data/labels/val").glob("*.txt"))
    label.write_text(label.read_text() + "9 0.5 0.5 0.1 0.1\n")
    assert run(["val", "--weights", "n.pt", *SMALL, "--verbose", "--iou-thres", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "val: 1 box skipped: class not in 0 to 3" in shown
    assert "--verbose is ignored: scores by class are always shown" in shown
    assert run(["val", "--weights", "n.pt", *SMALL, "--json"]) == 0
    assert "val: 1 box skipped" in json.loads(capsys.readouterr().out)["notes"][0]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--conf-thres", "3"], "--conf-thres is 3.0"),
        (["--task", "other"], "'other' is not a split; choose one of train, val, test"),
        (["--batch", "0"], "use at least 1 and 32"),
        (["--tiles", "8"], "tiles of 8 pixels are too small"),
    ],
)
def test_invalid_flags_are_rejected(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["val", "--weights", "n.pt", *SMALL, *flags]) == 2
    assert message in capsys.readouterr().err
