"""The command line of training; runs themselves are tested in tests/detect/test_course.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomph.cli import run
from oomph.detect import EmbeddedSize, write_embedded


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data", "none.yaml"], "there is no file"),
        (["--data", "none.yaml", "--weights", "yolov5s.pt"], "oomph fetches nothing"),
        (["--name", "../up"], "can't be the name of a run"),
        (["--resume"], "there is no run to resume in runs"),
        (["--resume", "--name", "never"], "no run 'never' to resume"),
        (["--resume", "never/last.pt"], "there is no run 'never/last.pt' to resume"),
        (["--resume", "."], "there is no checkpoint in '.'"),
        (["--resume", "here", "--name", "exp"], "leave one of them out"),
        (["--allow", "optimizer"], "'optimizer' can't be allowed; it must be precision or size"),
        (["--device", "gpu"], "is no device"),
        (["--device", "0,1"], "`CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 2 -m oomph train …`"),
        (["--device", "cuda:99"], "there is no GPU 99"),
        (["--budget", "lots"], "lots"),
        (["--settings", "none.yaml"], "none.yaml"),
        (["--workers", "-3"], "workers is -3; it must be at least 1, or 0 for as many as the cores allow"),
    ],
)
def test_wrong_calls_end_in_one_sentence(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *arguments]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


def test_training_validating_and_detecting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(write_embedded(tmp_path / "data", EmbeddedSize(train=8, val=4)))
    asked = ["train", "--data", data, "--cfg", "yolov5n.yaml", "--img", "64", "--batch", "4", "--epochs", "1"]
    assert run([*asked, "--device", "cpu", "--json", "--cache"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["epochs"] == 1
    weights = f"{told['folder']}/weights/last.pt"
    assert run(["val", "--weights", weights, "--data", data, "--img", "64", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 4
    source = str(tmp_path / "data" / "images" / "val")
    assert run(["detect", source, "--weights", weights, "--img", "64", "--device", "cpu", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["images"]) == 4
    assert len(list(Path("runs/detect/exp").glob("*.jpg"))) == 4
    assert run(["val", "--weights", weights, "--data", data, "--task", "other"]) == 2
    assert run(["detect", source, "--weights", weights, "--conf-thres", "2"]) == 2
    assert run(["detect", "--source", source, "--weights", weights, "--img", "64", "--device", "cpu", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["images"]) == 4
