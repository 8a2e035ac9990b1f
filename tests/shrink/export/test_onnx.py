"""Exported files, run for real. `make test-export` installs what they need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from oomph.cli import run
from oomph.detect import DemoSize, HeadOutputs, read_weights, save_weights, write_demo_dataset, yolov5
from oomph.errors import OomphError
from oomph.shrink import OnnxRequest, ShrinkResult, shrink_onnx
from oomph.shrink._images import sample_images

pytestmark = pytest.mark.export
NAMES = ("disc", "square", "triangle", "cross")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, and weights whose outputs vary as those of a trained network do."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("shrink")
    data = write_demo_dataset(folder / "data", DemoSize(train=8, val=6))
    torch.manual_seed(0)
    model = yolov5("n", 4)
    images = torch.from_numpy(sample_images(data, "train", 64, 8))
    with torch.no_grad():
        for _ in range(20):
            model(images)  # BatchNorm's statistics
        features = model.eval().features(images)
        for layer, feature in zip(model.head.m, features, strict=True):
            assert isinstance(layer, nn.Conv2d)
            assert layer.bias is not None
            layer.bias.zero_()
            layer.weight *= 3 / layer(feature).std()
    save_weights(folder / "n.pt", model, NAMES)
    return folder


@pytest.fixture(scope="module")
def int8_result(folder: Path) -> ShrinkResult:
    return shrink_onnx(OnnxRequest(folder / "n.pt", folder / "data/data.yaml", 64, int8=True))


@pytest.fixture(scope="module")
def exported(folder: Path) -> Path:
    shrink_onnx(OnnxRequest(folder / "n.pt", folder / "data/data.yaml", 64))
    return folder / "n.onnx"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(1, 3, 64, 64), (3, 3, 96, 160)])
def test_outputs_equal_those_of_torch_at_any_size_and_batch(
    exported: Path, folder: Path, shape: tuple[int, ...]
) -> None:
    import onnxruntime

    images = torch.rand(shape)
    session = onnxruntime.InferenceSession(str(exported))
    outputs = session.run(None, {"images": images.numpy()})
    with torch.no_grad():
        expected = HeadOutputs(read_weights(folder / "n.pt").build()).eval()(images)
    assert [output.shape for output in outputs] == [tuple(level.shape) for level in expected]
    for output, level in zip(outputs, expected, strict=True):
        assert np.abs(output - level.numpy()).max() < 1e-4 * max(1, float(level.abs().max()))


def test_the_result_has_all_variants_and_the_file_is_small(int8_result: ShrinkResult, folder: Path) -> None:
    before, fp32, int8 = int8_result.variants
    assert [variant.name for variant in int8_result.variants] == ["PyTorch fp32", "ONNX fp32", "ONNX int8"]
    assert (before.file, fp32.file, int8.file) == (str(folder / "n.pt"), None, str(folder / "n-int8.onnx"))
    assert int8.file_bytes == (folder / "n-int8.onnx").stat().st_size <= 0.35 * fp32.file_bytes
    # BatchNorm is folded into the convolutions.
    assert before.parameters > fp32.parameters == int8.parameters > 0.99 * before.parameters
    assert int8.memory < before.memory
    assert all(item.latency.lower <= item.latency.median <= item.latency.upper for item in int8_result.variants)
    assert fp32.scores["mAP50"] == pytest.approx(before.scores["mAP50"], abs=1e-3)


def test_differences_are_measured_and_layers_in_float_are_named(int8_result: ShrinkResult) -> None:
    fp32, int8 = int8_result.differences
    assert fp32.largest < 1e-3
    assert fp32.mean < int8.mean
    assert int8_result.float_layers == ("model.24.m.0", "model.24.m.1", "model.24.m.2")


def test_int8_outputs_follow_those_of_torch(int8_result: ShrinkResult, folder: Path) -> None:
    import onnxruntime

    file = int8_result.variants[-1].file
    assert file is not None
    images = sample_images(folder / "data/data.yaml", "val", 64, 6).astype(np.float32) / 255
    outputs = onnxruntime.InferenceSession(file).run(None, {"images": images})
    with torch.no_grad():
        expected = HeadOutputs(read_weights(folder / "n.pt").build()).eval()(torch.from_numpy(images))
    for output, level in zip(outputs, expected, strict=True):
        assert np.corrcoef(output.ravel(), level.numpy().ravel())[0, 1] > 0.95


def test_val_scores_the_file_as_it_scores_the_weights(
    exported: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def scores(weights: Path) -> Any:
        flags = ["--data", str(folder / "data/data.yaml"), "--img", "64", "--batch", "4"]
        assert run(["val", "--weights", str(weights), *flags, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    before, after = scores(folder / "n.pt"), scores(exported)
    assert [item["name"] for item in after["by_class"]] == list(NAMES)
    for name in ("map50", "map50_95", "precision", "recall"):
        assert after[name] == pytest.approx(before[name], abs=1e-3)


def test_detect_draws_the_same_boxes(
    exported: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def boxes(weights: Path) -> Any:
        # Without suppression: neighbors of an untrained network are nearly equal, and either could win.
        flags = ["--img", "64", "--conf-thres", "0.5", "--iou-thres", "1", "--max-det", "1000"]
        flags += ["--out", str(tmp_path / weights.suffix[1:])]
        assert run(["detect", str(folder / "data/images/val"), "--weights", str(weights), *flags, "--json"]) == 0
        return [image["boxes"] for image in json.loads(capsys.readouterr().out)["images"]]

    before, after = boxes(folder / "n.pt"), boxes(exported)
    assert sum(map(len, before)) > 5
    for expected, found in zip(before, after, strict=True):
        assert len(found) == len(expected)
        for box in expected:  # in any order
            assert any(_is_same(box, other) for other in found)


def _is_same(box: Any, other: Any) -> bool:
    return box[4] == other[4] and np.allclose([*box[:4], box[5]], [*other[:4], other[5]], rtol=0, atol=0.01)


def test_the_file_has_no_paths_of_this_machine(exported: Path) -> None:
    content = exported.read_bytes()
    assert str(Path(torch.__file__).parent).encode() not in content
    assert b"_network.py" not in content


def test_the_command_prints_a_table_and_nothing_else_with_json(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.onnx"
    flags = ["--weights", str(folder / "n.pt"), "--data", str(folder / "data/data.yaml"), "--img", "50"]
    command = [sys.executable, "-m", "oomph", "shrink", "onnx", *flags, "--int8", "--out", str(out), "--json"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    document = json.loads(process.stdout)
    assert process.stderr == ""
    assert document["imgsz"] == 64
    assert document["variants"][-1]["file"] == str(out)


def test_other_onnx_files_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    foreign, broken = tmp_path / "foreign.onnx", tmp_path / "broken.onnx"
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [1])], [value("y", 1, [1])])
    opset = onnx.helper.make_opsetid("", 18)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), foreign)
    broken.write_bytes(b"not onnx")
    for file, message in (
        (foreign, "is not a detector that oomph exported"),
        (broken, "can't be read as an ONNX file"),
        (tmp_path / "no.onnx", "there is no file"),
    ):
        assert run(["val", "--weights", str(file), "--data", "data.yaml"]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_weights_that_compute_nan_are_not_exported(folder: Path, tmp_path: Path) -> None:
    weights = read_weights(folder / "n.pt")
    weights.state["model.24.m.0.weight"].fill_(float("nan"))
    save_weights(tmp_path / "nan.pt", weights.build(), NAMES)
    with pytest.raises(OomphError, match=r"differ from those of .* by up to nan"):
        shrink_onnx(OnnxRequest(tmp_path / "nan.pt", folder / "data/data.yaml", 64))
    assert not list(tmp_path.glob("*.onnx"))
