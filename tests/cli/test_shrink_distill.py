from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from oomph.cli import run
from oomph.detect import (
    DemoSize,
    TrainConfig,
    load_config,
    read_weights,
    save_weights,
    train,
    write_demo_dataset,
    yolov5,
)
from oomph.detect.dataset import DEMO_NAMES
from tests.detect.training.runs import RecordingProgress

COMMAND = ["shrink", "distill", "--teacher", "s.pt", "--data", "data/data.yaml", "--img", "64", "--batch", "4"]
COMMAND += ["--epochs", "1", "--device", "cpu"]


@pytest.fixture
def demo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_demo_dataset(Path("data"), DemoSize(train=4, val=2))
    torch.manual_seed(0)
    save_weights(Path("s.pt"), yolov5("s", 4), DEMO_NAMES)


@pytest.mark.medium
@pytest.mark.usefixtures("demo_folder", "quick_predictions")
@pytest.mark.large
def test_a_student_is_measured_beside_its_teacher(capsys: pytest.CaptureFixture[str]) -> None:
    save_weights(Path("n.pt"), yolov5("n", 4), DEMO_NAMES)
    Path("settings.yaml").write_text("distill: both\ndistill_gain: 2\n")
    assert run([*COMMAND, "--weights", "n.pt", "--settings", "settings.yaml", "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (result["oomph"], result["method"]) == ("shrink", "distill")
    teacher, before, student = result["variants"]
    assert [item["name"] for item in result["variants"]] == ["teacher", "student before", "student"]
    assert [item["parameters"] for item in result["variants"]] == [7_030_417, 1_769_329, 1_769_329]
    assert (teacher["file"], before["file"]) == ("s.pt", "n.pt")
    assert student["file"] == "runs/shrink/distill/weights/best.pt"
    assert student["training"]["predicted"] > 0
    assert student["training"]["batch"] == 4
    assert teacher["training"]["measured"] is None
    assert all(item["training"]["predicted"] > 0 for item in result["variants"])
    config = load_config(Path("runs/shrink/distill")).requested
    assert (config.distill, config.distill_gain, config.teacher) == ("both", 2.0, Path("s.pt").absolute())


@pytest.mark.large
@pytest.mark.usefixtures("demo_folder", "quick_predictions")
def test_a_finished_run_is_measured_again_without_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMMAND, "--cfg", "yolov5n.yaml", "--name", "small"]) == 0
    weights = Path("runs/shrink/small/weights/last.pt")
    before = read_weights(weights).state
    Path("s.pt").unlink()
    capsys.readouterr()
    assert run(["shrink", "distill", "--resume", "small"]) == 0
    output = capsys.readouterr()
    assert "resuming runs/shrink/small" in output.out + output.err
    assert "all 1 epoch are already trained" in output.out + output.err
    assert "written: runs/shrink/small/weights/best.pt" in output.out
    assert all(torch.equal(value, before[name]) for name, value in read_weights(weights).state.items())


@pytest.mark.medium
@pytest.mark.usefixtures("demo_folder", "quick_predictions")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*COMMAND, "--teacher", "no.pt"], "there is no file 'no.pt'; check the path"),
        ([*COMMAND, "--teacher", "other.pt"], "the tensors in other.pt are not those of YOLOv5"),
        ([*COMMAND, "--teacher", "two.pt"], "the teacher two.pt has 2 classes and the data has 4; pass a teacher"),
        ([*COMMAND, "--weights", "two.pt", "--cfg", "s"], "the weights are yolov5n and the network is yolov5s"),
        ([*COMMAND, "--cfg", "tiny"], "tiny"),
        ([*COMMAND, "--img", "8"], "the image size is 8; use at least 32"),
        ([*COMMAND, "--settings", "wrong.yaml"], "distill is 'all'; choose one of response, feature, both"),
        ([*COMMAND, "--settings", "flag.yaml"], "'teacher', which is a flag; remove it and pass --teacher"),
        (
            ["shrink", "distill", "--teacher", "s.pt"],
            "--data is missing; pass --data, or --resume with an interrupted run",
        ),
        (
            ["shrink", "distill", "--resume", "none"],
            "there is no run 'none' of this method to resume",
        ),
    ],
)
def test_wrong_input_is_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"weight": torch.zeros(3)}, "other.pt")
    save_weights(Path("two.pt"), yolov5("n", 2), list("ab"))
    Path("wrong.yaml").write_text("distill: all\n")
    Path("flag.yaml").write_text("teacher: s.pt\n")
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(Path("runs").rglob("*.pt"))


@pytest.mark.medium
@pytest.mark.usefixtures("demo_folder", "quick_predictions")
def test_a_run_without_a_teacher_is_resumed_by_train(capsys: pytest.CaptureFixture[str]) -> None:
    config = TrainConfig(
        Path("data/data.yaml"), Path("runs/shrink/alone"), "n", imgsz=64, batch=4, epochs=1, device="cpu"
    )
    train(config, RecordingProgress())
    assert run(["shrink", "distill", "--resume", "alone"]) == 2
    assert "has no teacher; resume it with `oomph train --resume`" in capsys.readouterr().err
