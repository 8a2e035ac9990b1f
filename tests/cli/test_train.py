"""The command line of training; runs are tested in test_train_runs.py and tests/detect/training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomph.cli import run
from oomph.cli.train import _write_report
from oomph.detect import DemoSize, write_demo_dataset
from oomph.distributed import SINGLE
from oomph.monitor import Recorder


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "none.yaml"], "there is no file"),
        (["--data", "none.yaml", "--weights", "yolov5s.pt"], "oomph downloads nothing"),
        (["--name", "../up"], "'../up' is not a valid run name"),
        (["--resume"], "there is no run to resume in runs"),
        (["--resume", "--name", "never"], "no run 'never' to resume"),
        (["--resume", "never/last.pt"], "there is no run 'never/last.pt' to resume"),
        (["--resume", "."], "there is no checkpoint in '.'"),
        (["--resume", "here", "--name", "exp"], "both --resume here and --name exp select a run; remove one of them"),
        (["--allow", "optimizer"], "'optimizer' can't be allowed"),
        (["--device", "gpu"], "'gpu' is not a device"),
        (["--device", "0,1"], "`CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 2 -m oomph train …`"),
        (["--device", "cuda:99"], "there is no GPU 99"),
        (["--budget", "lots"], "lots"),
        (["--settings", "none.yaml"], "none.yaml"),
        (
            ["--cfg", "nonsense"],
            "'nonsense' is not a network; choose one of n, s, m, l, x, mobilenet, shufflenet, depthwise",
        ),
        (["--workers", "-3"], "workers is -3; use at least 1, or 0 for an automatic choice"),
    ],
)
def test_invalid_flags_are_rejected_with_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


def test_a_failed_start_leaves_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--data", "none.yaml"]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert list(Path("runs/train").iterdir()) == []


@pytest.mark.medium
def test_train_val_and_detect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(write_demo_dataset(tmp_path / "data", DemoSize(train=8, val=4)))
    flags = ["--data", data, "--cfg", "yolov5n.yaml", "--img", "64", "--batch", "4", "--epochs", "1"]
    assert run(["train", *flags, "--device", "cpu", "--json", "--cache"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["epochs"] == 1
    assert (Path(result["run_dir"]) / "report.html").read_bytes().startswith(b"<!DOCTYPE html>")
    weights = ["--weights", f"{result['run_dir']}/weights/last.pt", "--img", "64", "--device", "cpu", "--json"]
    assert run(["val", "--data", data, *weights]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 4
    source = str(tmp_path / "data" / "images" / "val")
    assert run(["detect", source, *weights]) == 0
    assert len(json.loads(capsys.readouterr().out)["images"]) == 4
    assert len(list(Path("runs/detect/exp").glob("*.jpg"))) == 4


@pytest.mark.large
def test_a_small_backbone_is_trained_scored_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(write_demo_dataset(tmp_path / "data", DemoSize(train=8, val=4)))
    flags = ["--data", data, "--img", "64", "--batch", "4", "--epochs", "1", "--device", "cpu"]
    assert run(["train", *flags, "--cfg", "mobilenet", "--json"]) == 0
    folder = json.loads(capsys.readouterr().out)["run_dir"]
    weights = f"{folder}/weights/last.pt"
    assert run(["val", "--data", data, "--weights", weights, "--img", "64", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 4
    source = str(tmp_path / "data" / "images" / "val")
    assert run(["detect", source, "--weights", weights, "--img", "64", "--device", "cpu", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["images"]) == 4
    assert run(["train", *flags, "--weights", weights, "--name", "finetuned", "--json"]) == 0
    assert json.loads(Path("runs/train/finetuned/config.json").read_text())["requested"]["cfg"] == "mobilenet"
    capsys.readouterr()
    assert run(["train", *flags, "--weights", weights, "--cfg", "n"]) == 2
    assert "the weights are mobilenet and the network is yolov5n" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_does_not_fail_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with _write_report(tmp_path, SINGLE):
        pass  # failed before its first step: there is no Record
    assert capsys.readouterr().err == ""
    with _write_report(tmp_path, SINGLE):
        (tmp_path / "record.jsonl").write_text("damaged")
    assert "The report was not written: " in caplog.text
    (tmp_path / "record.jsonl").unlink()
    with pytest.raises(KeyboardInterrupt):
        _interrupted_run(tmp_path)
    assert capsys.readouterr().err == f"report: {tmp_path / 'report.html'}\n"


def _interrupted_run(folder: Path) -> None:
    with _write_report(folder, SINGLE):
        Recorder(folder / "record.jsonl").close()
        raise KeyboardInterrupt
