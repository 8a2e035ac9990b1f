from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oomph.cli import run
from oomph.detect import ANCHORS, STRIDES, HeadOutputs, OnnxMetadata, yolov5
from oomph.detect.inference._onnx_detector import OnnxDetector
from oomph.errors import UsageError

NAMES = ("disc", "square", "triangle", "cross")


class TorchSession:
    """Computes what an ONNX session of the network would, by torch."""

    def __init__(self, network: HeadOutputs) -> None:
        self._network = network

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="images")]

    @torch.no_grad()
    def run(self, names: None, inputs: dict[str, Any]) -> list[Any]:
        assert names is None
        return [output.numpy() for output in self._network(torch.from_numpy(inputs["images"]))]


@torch.no_grad()
def test_outputs_are_decoded_as_by_the_network_itself() -> None:
    torch.manual_seed(0)
    model = yolov5("n", 4).eval()
    detector = OnnxDetector(TorchSession(HeadOutputs(model)), OnnxMetadata(NAMES, ANCHORS, STRIDES, 64, "fp32"))
    images = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8)
    boxes, levels = model(images)
    decoded, raw = detector(images)
    assert torch.allclose(decoded, boxes, atol=1e-4)
    assert [level.shape for level in raw] == [level.shape for level in levels]


def test_a_size_that_is_no_multiple_of_32_is_rejected() -> None:
    detector = OnnxDetector(None, OnnxMetadata(NAMES, ANCHORS, STRIDES, 64, "fp32"))
    with pytest.raises(UsageError, match="the images are 64 x 50 pixels; make both sides multiples of 32"):
        detector(torch.zeros(1, 3, 64, 50))


def test_a_gpu_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"x\.onnx is an ONNX file, which runs on the CPU; use --device cpu"):
        OnnxDetector.open(Path("x.onnx"), "cuda:0")


@pytest.mark.parametrize("command", [["val", "--data", "data.yaml"], ["detect", "photo.jpg"]])
def test_a_missing_runtime_is_one_sentence(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert run([*command, "--weights", "model.onnx"]) == 2
    message = "model.onnx needs the package onnxruntime, which isn't installed; run `pip install 'oomph[export]'`."
    assert capsys.readouterr().err == f"oomph: {message}\n"
    assert not list(tmp_path.rglob("*.jpg"))
