from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from oomph.cli import run
from oomph.detect import ANCHORS, STRIDES, ExportedFile, ExportMetadata, HeadOutputs, Yolov5, yolov5
from oomph.detect.inference._config import load_detector
from oomph.detect.inference._exported_detector import ExportedDetector
from oomph.errors import UsageError

NAMES = ("disc", "square", "triangle", "cross")
METADATA = ExportMetadata(NAMES, ANCHORS, STRIDES, 64, "fp32", 1000)


@pytest.fixture(scope="module")
def model() -> Yolov5:
    torch.manual_seed(0)
    return yolov5("n", 4).eval()


def exported(model: Yolov5, max_side: int | None = None, *, is_fixed: bool = False) -> ExportedDetector:
    """Return a detector whose network is computed by torch, with the limits of a format."""
    network = HeadOutputs(model)

    @torch.no_grad()
    def compute(pixels: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        if is_fixed:
            assert pixels.shape[2:] == (max_side, max_side)
        return [output.numpy() for output in network(torch.from_numpy(pixels))]

    return ExportedDetector(ExportedFile(compute, {}, (27,) * 3, max_side, is_fixed), METADATA)


@torch.no_grad()
def test_outputs_are_decoded_as_by_the_network_itself(model: Yolov5) -> None:
    images = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8)
    boxes, levels = model(images)
    decoded, raw = exported(model)(images)
    assert torch.allclose(decoded, boxes, atol=1e-4)
    assert [level.shape for level in raw] == [level.shape for level in levels]


@torch.no_grad()
def test_small_images_are_padded_with_gray_at_the_right_and_bottom(model: Yolov5) -> None:
    images = torch.randint(0, 256, (2, 3, 32, 64), dtype=torch.uint8)
    padded = torch.full((2, 3, 64, 64), 114, dtype=torch.uint8)
    padded[:, :, :32] = images
    assert torch.allclose(exported(model, 64, is_fixed=True)(images)[0], model(padded)[0], atol=1e-4)


@torch.no_grad()
def test_the_border_of_rectangular_batches_is_cut_and_boxes_are_moved_back(model: Yolov5) -> None:
    images = torch.randint(0, 256, (1, 3, 96, 64), dtype=torch.uint8)
    expected = model(images[:, :, 16:80])[0]
    expected[..., 1] += 16
    assert torch.allclose(exported(model, 64, is_fixed=True)(images)[0], expected, atol=1e-4)


@pytest.mark.parametrize(("max_side", "is_fixed"), [(96, False), (64, True)])
def test_images_that_are_too_large_are_rejected(model: Yolov5, max_side: int, *, is_fixed: bool) -> None:
    detector = exported(model, max_side, is_fixed=is_fixed)
    with pytest.raises(UsageError, match="the images are 64 x 128 pixels, and the file was exported for 64; use a"):
        detector(torch.zeros(1, 3, 64, 128))


def test_a_size_that_is_no_multiple_of_32_is_rejected(model: Yolov5) -> None:
    with pytest.raises(UsageError, match="the images are 64 x 50 pixels; make both sides multiples of 32"):
        exported(model)(torch.zeros(1, 3, 64, 50))


def test_an_image_size_above_that_of_the_export_is_one_sentence(model: Yolov5, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = exported(model, 96)
    monkeypatch.setattr(ExportedDetector, "open", lambda path, device: detector)
    assert load_detector(Path("n.pte"), None, 64).names == NAMES
    with pytest.raises(UsageError, match=r"the image size is 96, and n\.pte was exported for at most 64; use --img 64"):
        load_detector(Path("n.pte"), None, 96)


@pytest.mark.parametrize("name", ["x.onnx", "x.pte", "x.tflite"])
def test_a_gpu_is_rejected(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is an exported file, which runs on the CPU; use --device cpu"):
        ExportedDetector.open(Path(name), "cuda:0")


RUNTIMES = [
    ("onnxruntime", "onnxruntime", "model.onnx", "export"),
    ("executorch", "executorch", "model.pte", "executorch"),
    ("ai_edge_litert", "ai-edge-litert", "model.tflite", "litert"),
]


@pytest.mark.parametrize("command", [["val", "--data", "data.yaml"], ["detect", "photo.jpg"]])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_missing_runtime_is_one_sentence(
    command: list[str],
    runtime: tuple[str, str, str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module, package, file, extra = runtime
    monkeypatch.chdir(tmp_path)
    Path(file).touch()
    monkeypatch.setitem(sys.modules, module, None)
    assert run([*command, "--weights", file]) == 2
    message = f"{file} needs the package {package}, which isn't installed; run `pip install 'oomph[{extra}]'`."
    assert capsys.readouterr().err == f"oomph: {message}\n"
    assert not list(tmp_path.rglob("*.jpg"))
