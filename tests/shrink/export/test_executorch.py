"""ExecuTorch programs, run for real. `make test-export` installs what they need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oomph.cli import run
from oomph.detect import open_exported
from oomph.shrink import ExportRequest, shrink_executorch
from oomph.shrink._images import sample_images
from oomph.shrink.export._quiet import quiet
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
    pytest.importorskip("executorch")


@pytest.fixture(scope="module")
def int8_document(folder: Path) -> Any:
    """The command prints a document and nothing else."""
    return assert_json_only("executorch", folder, folder / "n-int8.pte")


@pytest.fixture(scope="module")
def exported(folder: Path) -> Path:
    shrink_executorch(ExportRequest(folder / "n.pt", folder / "data/data.yaml", 64))
    return folder / "n.pte"


@pytest.mark.parametrize("shape", [(1, 3, 64, 64), (3, 3, 96, 32), (1, 3, 32, 96)])
def test_outputs_equal_those_of_torch_up_to_a_stride_above_the_image_size(
    exported: Path, folder: Path, shape: tuple[int, ...]
) -> None:
    images = np.random.default_rng(0).random(shape, np.float32)
    file = open_exported(exported)
    assert (file.max_side, file.is_fixed) == (96, False)
    outputs, expected = file.run(images), torch_outputs(folder / "n.pt", images)
    assert [output.shape for output in outputs] == [level.shape for level in expected]
    for output, level in zip(outputs, expected, strict=True):
        assert np.abs(output - level).max() < 1e-4 * max(1, np.abs(level).max())


def test_images_whose_channels_are_last_in_memory_are_read_as_such(exported: Path) -> None:
    images = np.random.default_rng(0).random((2, 3, 64, 96), np.float32)
    strided = images.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    assert not strided.flags.c_contiguous
    file = open_exported(exported)
    for output, expected in zip(file.run(strided), file.run(images), strict=True):
        assert np.array_equal(output, expected)


def test_outputs_outlive_the_next_run(exported: Path) -> None:
    file = open_exported(exported)
    first = file.run(np.zeros((1, 3, 64, 64), np.float32))
    copies = [output.copy() for output in first]
    file.run(np.ones((1, 3, 64, 64), np.float32))
    assert all(np.array_equal(output, copy) for output, copy in zip(first, copies, strict=True))


def test_the_result_has_all_variants_and_the_file_is_small(int8_document: Any, folder: Path) -> None:
    before, fp32, int8 = variants = int8_document["variants"]
    file = folder / "n-int8.pte"
    assert [variant["name"] for variant in variants] == ["PyTorch fp32", "ExecuTorch fp32", "ExecuTorch int8"]
    assert [variant["file"] for variant in variants] == [str(folder / "n.pt"), None, str(file)]
    assert int8["file_bytes"] == file.stat().st_size <= 0.35 * fp32["file_bytes"]
    assert before["parameters"] > fp32["parameters"] == int8["parameters"] > 0.99 * before["parameters"]
    assert fp32["scores"]["mAP50"] == pytest.approx(before["scores"]["mAP50"], abs=1e-3)


def test_differences_are_measured_and_layers_in_float_are_named(int8_document: Any) -> None:
    fp32, int8 = int8_document["differences"]
    assert fp32["largest"] < 1e-3
    assert fp32["mean"] < int8["mean"]
    assert int8_document["float_layers"] == ["model.24.m.0", "model.24.m.1", "model.24.m.2"]


def test_int8_outputs_follow_those_of_torch(int8_document: Any, folder: Path) -> None:
    file = open_exported(Path(int8_document["variants"][-1]["file"]))
    images = sample_images(folder / "data/data.yaml", "val", 64, 6).astype(np.float32) / np.float32(255)
    outputs, expected = file.run(images), torch_outputs(folder / "n.pt", images)
    for output, level in zip(outputs, expected, strict=True):
        assert np.corrcoef(output.ravel(), level.ravel())[0, 1] > 0.95


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


def test_a_larger_image_size_is_one_sentence(
    exported: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    flags = ["--weights", str(exported), "--img", "96"]
    for command in (["val", "--data", str(folder / "data/data.yaml")], ["detect", str(folder), "--out", str(out)]):
        assert run([*command, *flags]) == 2
        error = capsys.readouterr().err
        assert f"the image size is 96, and {exported} was exported for at most 64; use --img 64" in error
        assert error.count("\n") == 1
    assert not out.exists()


def test_the_file_has_no_paths_of_this_machine(exported: Path) -> None:
    content = exported.read_bytes()
    assert str(Path(torch.__file__).parent).encode() not in content
    assert b"_network.py" not in content


def test_other_programs_are_rejected(tmp_path: Path, exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from executorch.exir import to_edge

    foreign, broken, short = (tmp_path / f"{name}.pte" for name in ("foreign", "broken", "short"))
    with quiet():
        program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
        foreign.write_bytes(to_edge(program).to_executorch().buffer)
    broken.write_bytes(b"not a program")
    short.write_bytes(exported.read_bytes()[:20_000])
    for file, message in (
        (foreign, "is not a detector that oomph exported"),
        (broken, "can't be read as ExecuTorch file"),
        (short, "can't be read as ExecuTorch file"),
        (tmp_path / "no.pte", "there is no file"),
    ):
        assert_one_sentence(file, message, capsys)
