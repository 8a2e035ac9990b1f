from __future__ import annotations

from pathlib import Path

import pytest
import torch

from oomph.detect import DemoSize, save_weights, write_demo_dataset, yolov5
from oomph.shrink import CompareRequest, ExportRequest, compare_variants, shrink_onnx
from oomph.shrink._compare import name_files


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_demo_dataset(tmp_path / "data", DemoSize(train=4, val=2))


def write_weights(path: Path, size: str, classes: int = 4) -> Path:
    torch.manual_seed(0)
    path.parent.mkdir(exist_ok=True)
    save_weights(path, yolov5(size, classes), [f"class {number}" for number in range(classes)])
    return path


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["runs/a/best.pt", "b.onnx"], ("best.pt", "b.onnx")),
        (["runs/a/weights/best.pt", "runs/b/weights/best.pt"], ("a/weights/best.pt", "b/weights/best.pt")),
        (["best.pt", "a/best.pt", "best.onnx"], ("best.pt", "a/best.pt", "best.onnx")),
        (["/best.pt", "/a/best.pt"], ("/best.pt", "a/best.pt")),
    ],
)
def test_names_are_as_short_as_they_can_be(files: list[str], names: tuple[str, ...]) -> None:
    assert name_files([Path(file) for file in files]) == names


@pytest.mark.large
def test_weights_are_measured_and_their_training_is_predicted(tmp_path: Path, data: Path) -> None:
    files = (write_weights(tmp_path / "s.pt", "s"), write_weights(tmp_path / "n.pt", "n"))
    logged: list[str] = []
    result = compare_variants(CompareRequest(files, data, 50, batch=8, gpu="RTX 3060"), logged.append)
    large, small = result.variants
    assert (result.imgsz, large.name, small.name) == (64, "s.pt", "n.pt")
    assert logged == ["measuring s.pt (1 of 2)", "measuring n.pt (2 of 2)"]
    assert large.file_bytes == files[0].stat().st_size > 2 * small.file_bytes
    assert large.parameters > 2 * small.parameters
    assert large.latency.median > small.latency.median
    assert large.training is not None
    assert small.training is not None
    assert large.training.predicted > 2 * small.training.predicted
    assert (small.training.batch, small.training.measured) == (8, None)
    assert "3060" in small.training.target
    assert result.front == ("n.pt",)
    assert result.recommendation.variant is None  # untrained


@pytest.mark.medium
def test_training_is_not_predicted_without_a_train_split(tmp_path: Path, data: Path) -> None:
    files = (write_weights(tmp_path / "old" / "n.pt", "n"), write_weights(tmp_path / "new" / "n.pt", "n"))
    val_only = tmp_path / "val.yaml"
    val_only.write_text(f"path: {data.parent}\nval: images/val\nnames: [a, b, c, d]\n")
    logged: list[str] = []
    result = compare_variants(CompareRequest(files, val_only, 64, gpu="cpu"), logged.append)
    assert [variant.name for variant in result.variants] == ["old/n.pt", "new/n.pt"]
    assert all(variant.training is None for variant in result.variants)
    assert logged[0].startswith("training memory can't be predicted: ")


@pytest.mark.export
def test_exported_files_are_compared_with_weights(tmp_path: Path, data: Path) -> None:
    pytest.importorskip("onnxruntime")
    weights = write_weights(tmp_path / "n.pt", "n")
    shrink_onnx(ExportRequest(weights, data, 64))
    before, exported = compare_variants(CompareRequest((weights, tmp_path / "n.onnx"), data, 64, gpu="cpu")).variants
    assert exported.name == "n.onnx"
    assert exported.memory < before.memory
    assert exported.scores["mAP50-95"] == pytest.approx(before.scores["mAP50-95"], abs=1e-3)
    assert before.training is not None
    assert exported.training is None
