"""Exported files, run for real. `make test-export` installs what they need."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oomph.detect import read_weights, save_weights
from oomph.errors import OomphError
from oomph.shrink import ExportRequest, ShrinkResult, shrink_onnx
from oomph.shrink._images import sample_images
from oomph.shrink.export._onnx_file import convolutions
from tests.shrink.export.commands import (
    NAMES,
    assert_json_only,
    assert_one_sentence,
    assert_same_boxes,
    detected_boxes,
    torch_outputs,
    val_scores,
)

pytestmark = pytest.mark.export


@pytest.fixture(scope="module", autouse=True)
def runtime() -> None:
    pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def int8_result(folder: Path) -> ShrinkResult:
    return shrink_onnx(ExportRequest(folder / "n.pt", folder / "data/data.yaml", 64, int8=True))


@pytest.fixture(scope="module")
def exported(folder: Path) -> Path:
    shrink_onnx(ExportRequest(folder / "n.pt", folder / "data/data.yaml", 64))
    return folder / "n.onnx"


@pytest.mark.parametrize("shape", [(1, 3, 64, 64), (3, 3, 96, 160)])
def test_outputs_equal_those_of_torch_at_any_size_and_batch(
    exported: Path, folder: Path, shape: tuple[int, ...]
) -> None:
    import onnxruntime

    images = np.random.default_rng(0).random(shape, np.float32)
    session = onnxruntime.InferenceSession(str(exported))
    outputs, expected = session.run(None, {"images": images}), torch_outputs(folder / "n.pt", images)
    assert [output.shape for output in outputs] == [level.shape for level in expected]
    for output, level in zip(outputs, expected, strict=True):
        assert np.abs(output - level).max() < 1e-4 * max(1, np.abs(level).max())


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
    images = sample_images(folder / "data/data.yaml", "val", 64, 6).astype(np.float32) / np.float32(255)
    outputs, expected = (
        onnxruntime.InferenceSession(file).run(None, {"images": images}),
        torch_outputs(folder / "n.pt", images),
    )
    for output, level in zip(outputs, expected, strict=True):
        assert np.corrcoef(output.ravel(), level.ravel())[0, 1] > 0.95


def test_the_number_of_parameters_is_that_of_the_file(exported: Path, int8_result: ShrinkResult) -> None:
    zeros = 3 * 27  # biases of the head, which are zero here: the exporter omits them
    assert sum(layer.parameters for layer in convolutions(exported)) + zeros == int8_result.variants[1].parameters


def test_val_scores_the_file_as_it_scores_the_weights(
    exported: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = (val_scores(file, folder / "data/data.yaml", capsys) for file in (folder / "n.pt", exported))
    assert [item["name"] for item in after["by_class"]] == list(NAMES)
    for name in ("map50", "map50_95", "precision", "recall"):
        assert after[name] == pytest.approx(before[name], abs=1e-3)


def test_detect_draws_the_same_boxes(
    exported: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = folder / "data/images/val"
    before = detected_boxes(folder / "n.pt", images, tmp_path / "before", capsys)
    assert_same_boxes(before, detected_boxes(exported, images, tmp_path / "after", capsys))


def test_the_file_has_no_paths_of_this_machine(exported: Path) -> None:
    content = exported.read_bytes()
    assert str(Path(torch.__file__).parent).encode() not in content
    assert b"_network.py" not in content


def test_the_command_prints_a_table_and_nothing_else_with_json(folder: Path, tmp_path: Path) -> None:
    assert_json_only("onnx", folder, tmp_path / "x.onnx")


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
        (broken, "can't be read as ONNX file"),
        (tmp_path / "no.onnx", "there is no file"),
    ):
        assert_one_sentence(file, message, capsys)


def test_weights_that_compute_nan_are_not_exported(folder: Path, tmp_path: Path) -> None:
    weights = read_weights(folder / "n.pt")
    weights.state["model.24.m.0.weight"].fill_(float("nan"))
    save_weights(tmp_path / "nan.pt", weights.build(), NAMES)
    with pytest.raises(OomphError, match=r"differ from those of .* by up to nan"):
        shrink_onnx(ExportRequest(tmp_path / "nan.pt", folder / "data/data.yaml", 64))
    assert not list(tmp_path.glob("*.onnx"))
