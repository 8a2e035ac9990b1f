"""Detectors that are quantized with and without training; the files run for real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from oomph.cli import run
from oomph.detect import DemoSize, HeadOutputs, read_weights, save_weights, write_demo_dataset, yolov5
from oomph.shrink import QUANTIZE_FILE, ShrinkResult, quantize_detector
from oomph.shrink._images import sample_images

from ...detect.training.runs import RecordingProgress

pytestmark = pytest.mark.export
NAMES = ("disc", "square", "triangle", "cross")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("quantize")
    data = write_demo_dataset(folder / "data", DemoSize(train=8, val=4))
    torch.manual_seed(0)
    model = yolov5("n", 4)
    images = torch.from_numpy(sample_images(data, "train", 64, 8))
    with torch.no_grad():
        for _ in range(20):
            model(images)  # BatchNorm's statistics
    save_weights(folder / "n.pt", model, NAMES)
    return folder


@pytest.fixture(scope="module")
def progress() -> RecordingProgress:
    return RecordingProgress()


@pytest.fixture(scope="module")
def result(folder: Path, progress: RecordingProgress) -> ShrinkResult:
    """The result of a command that was killed in its training and resumed."""
    (folder / "settings.yaml").write_text("nominal_batch: 4\n")
    flags = "--weights n.pt --data data/data.yaml --img 50 --epochs 3 --batch 4 --device cpu --settings settings.yaml"
    command = [sys.executable, "-m", "oomph", "shrink", "quantize", *flags.split()]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder)
    run_dir = folder / "runs/shrink/quantize"
    while process.poll() is None and not (run_dir / "weights/state.pt").exists():
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not list(folder.glob("*.onnx"))
    return quantize_detector(QUANTIZE_FILE.load(run_dir), progress)


def test_a_killed_command_continues(result: ShrinkResult, progress: RecordingProgress, folder: Path) -> None:
    assert any(message.startswith("resumed at iteration") for message in progress.messages)
    assert len(progress.rows) < 3
    assert len((folder / "runs/shrink/quantize/results.csv").read_text().splitlines()) == 1 + 3
    assert (result.method, result.imgsz) == ("quantize", 64)


def test_the_result_compares_calibration_and_training(result: ShrinkResult, folder: Path) -> None:
    before, fp32, calibrated, trained = result.variants
    names = ["PyTorch fp32", "ONNX fp32", "ONNX int8", "ONNX int8 QAT"]
    assert [variant.name for variant in result.variants] == names
    assert (before.file, fp32.file, calibrated.file) == (str(folder / "n.pt"), None, None)
    assert trained.file == str(folder / "n-int8-qat.onnx")
    assert trained.file_bytes == (folder / "n-int8-qat.onnx").stat().st_size < 0.35 * before.file_bytes
    assert (before.training, fp32.training, calibrated.training) == (None, None, None)
    assert trained.training is not None
    assert trained.training.predicted > 0
    assert trained.training.batch == 4
    assert result.float_layers == ("model.24.m.0", "model.24.m.1", "model.24.m.2")
    assert [difference.variant for difference in result.differences] == ["ONNX fp32", "ONNX int8"]


def test_the_file_has_the_trained_weights(result: ShrinkResult, folder: Path) -> None:
    import onnxruntime

    file = result.variants[-1].file
    assert file is not None
    images = sample_images(folder / "data/data.yaml", "val", 64, 4).astype(np.float32) / 255
    outputs = onnxruntime.InferenceSession(file).run(None, {"images": images})
    trained = folder / "runs/shrink/quantize/weights/best.pt"
    with torch.no_grad():
        expected = HeadOutputs(read_weights(trained).build()).eval()(torch.from_numpy(images))
    for output, level in zip(outputs, expected, strict=True):
        assert np.corrcoef(output.ravel(), level.numpy().ravel())[0, 1] > 0.95
    original = read_weights(folder / "n.pt").state
    assert any(not torch.equal(tensor, original[name]) for name, tensor in read_weights(trained).state.items())


def test_val_and_detect_take_the_file(
    result: ShrinkResult, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(result.variants[-1].file)
    assert run(["val", "--weights", file, "--data", str(folder / "data/data.yaml"), "--img", "64", "--json"]) == 0
    assert [item["name"] for item in json.loads(capsys.readouterr().out)["by_class"]] == list(NAMES)
    images, out = str(folder / "data/images/val"), str(tmp_path / "out")
    assert run(["detect", images, "--weights", file, "--img", "64", "--out", out, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["images"]) == 4


def test_without_epochs_it_only_calibrates(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--weights", str(folder / "n.pt"), "--data", str(folder / "data/data.yaml"), "--img", "64"]
    assert run(["shrink", "quantize", *flags, "--out", str(tmp_path / "c.onnx"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [variant["name"] for variant in document["variants"]] == ["PyTorch fp32", "ONNX fp32", "ONNX int8"]
    assert document["method"] == "quantize"
    assert [file.name for file in tmp_path.iterdir()] == ["c.onnx"]
