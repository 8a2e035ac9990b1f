from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from oomph.cli import run
from oomph.detect import DemoSize, save_weights, write_demo_dataset, yolov5
from oomph.shrink.export import _export

COMMAND = ["shrink", "onnx", "--weights", "n.pt", "--data", "data/data.yaml", "--img", "64"]


@pytest.fixture
def demo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_export, "_check_packages", lambda exporter: None)
    write_demo_dataset(Path("data"), DemoSize(train=1, val=1))
    torch.manual_seed(0)
    save_weights(Path("n.pt"), yolov5("n", 4), list("abcd"), {})


@pytest.mark.parametrize(
    ("method", "title", "modules", "extra"),
    [
        ("onnx", "ONNX", ("onnx", "onnxscript", "onnxruntime"), "export"),
        ("executorch", "ExecuTorch", ("executorch", "torchao"), "executorch"),
        ("litert", "LiteRT", ("ai_edge_litert", "ai_edge_quantizer", "litert_torch"), "litert"),
    ],
)
def test_missing_packages_are_one_sentence(
    method: str,
    title: str,
    modules: tuple[str, ...],
    extra: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)
    assert run(["shrink", method, *COMMAND[2:]]) == 2
    why = f"{title} needs packages that aren't installed ({', '.join(modules)})"
    assert capsys.readouterr().err == f"oomph: {why}; run `pip install 'oomph[{extra}]'`.\n"


@pytest.mark.medium
@pytest.mark.usefixtures("demo_folder")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--weights", "no.pt"], "there is no file 'no.pt'; check the path"),
        (["--weights", "other.pt"], "the tensors in other.pt are not those of YOLOv5"),
        (["--weights", "text.pt"], "text.pt is not in the zip format"),
        (["--weights", "n.onnx"], "n.onnx is an exported file already; pass the .pt file"),
        (["--weights", "two.pt"], "the weights have 2 classes and data/data.yaml has 4"),
        (["--data", "no.yaml"], "no.yaml"),
        (["--out", "no/folder/n.onnx"], "'no/folder/n.onnx' can't be written; pass a file in an existing folder"),
        (["--out", "n.tflite"], "the output file is 'n.tflite'; use a name that ends in .onnx"),
        (["--img", "8"], "the image size is 8; use at least 32"),
        (["--int8", "--data", "val.yaml"], "no images to calibrate with: val.yaml names no train images; add a line"),
    ],
)
def test_wrong_input_is_one_sentence(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"weight": torch.zeros(3)}, "other.pt")
    Path("text.pt").write_text("hello")
    save_weights(Path("two.pt"), yolov5("n", 2), list("ab"), {})
    Path("val.yaml").write_text("path: data\nval: images/val\nnames: [a, b, c, d]\n")
    assert run([*COMMAND, *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(Path().rglob("*.onnx"))


@pytest.mark.medium
@pytest.mark.usefixtures("demo_folder")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--weights", "other.pt"], "the tensors in other.pt are not those of YOLOv5"),
        (["--data", "val.yaml"], "no images to calibrate with: val.yaml names no train images; add a line"),
        (["--out", "n.pt"], "the output file is 'n.pt'; use a name that ends in .onnx"),
        (["--img", "8"], "the image size is 8; use at least 32"),
        (["--resume", "no"], "there is no run 'no' of this method to resume"),
        (["--settings", "no.yaml"], "no.yaml"),
        (["--epochs", "-1"], "'--epochs'"),
        (["--batch", "0"], "batch is 0; use at least 1"),
        (["--budget", "much"], "much"),
        (["--device", "tpu"], "tpu"),
    ],
)
def test_wrong_input_of_quantize_is_one_sentence(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"weight": torch.zeros(3)}, "other.pt")
    Path("val.yaml").write_text("path: data\nval: images/val\nnames: [a, b, c, d]\n")
    assert run(["shrink", "quantize", *COMMAND[2:], "--epochs", "1", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(Path().rglob("*.onnx"))
    assert not list(Path().rglob("quantize.json"))


def test_quantize_needs_weights_and_data_or_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shrink", "quantize", "--weights", "n.pt"]) == 2
    assert "--data is missing; pass --data, or --resume with an interrupted run" in capsys.readouterr().err


@pytest.mark.medium
@pytest.mark.usefixtures("demo_folder")
@pytest.mark.parametrize(("method", "suffix"), [("executorch", ".pte"), ("litert", ".tflite")])
def test_other_formats_have_their_own_suffix_and_need_images_too(
    method: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("val.yaml").write_text("path: data\nval: images/val\nnames: [a, b, c, d]\n")
    for flags, message in (
        (["--out", "n.onnx"], f"the output file is 'n.onnx'; use a name that ends in {suffix}"),
        (["--weights", f"n{suffix}"], f"n{suffix} is an exported file already; pass the .pt file"),
        (["--int8", "--data", "val.yaml"], "no images to calibrate with: val.yaml names no train images"),
    ):
        assert run(["shrink", method, *COMMAND[2:], *flags]) == 2
        assert message in capsys.readouterr().err
    assert not list(Path().rglob(f"*{suffix}"))


def test_an_unknown_method_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shrink", "squeeze", *COMMAND[2:]]) == 2
    error = capsys.readouterr().err
    assert "No such command 'squeeze'" in error
    assert "oomph shrink --help" in error
    assert error.count("\n") == 1
