"""The command line of training; runs themselves are tested in tests/detect/test_course.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomph.cli import run
from oomph.cli._main import build
from oomph.cli._yolov5 import DETECT, TRAIN, VAL, Foreign, translated
from oomph.detect import EmbeddedSize, OrderForm, read_settings, write_embedded


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


FOREIGN = {"train": TRAIN, "val": VAL, "detect": DETECT}
NEEDED = {"train": [], "val": ["--weights", "w.pt", "--data", "d.yaml"], "detect": ["a.jpg", "--weights", "w.pt"]}


@pytest.mark.parametrize(("command", "flag"), [(name, flag) for name, one in FOREIGN.items() for flag in one.refused])
def test_a_flag_of_yolov5_that_is_not_here_gets_its_reason(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, *NEEDED[command], flag, "1"]) == 2
    assert f"{flag} is YOLOv5's and not here: {FOREIGN[command].refused[flag]}" in capsys.readouterr().err


@pytest.mark.parametrize("flag", sorted(TRAIN.settings))
def test_a_flag_of_yolov5_that_is_a_setting_gets_the_line_to_write(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", flag, "1"]) == 2
    assert f"write a line such as `{TRAIN.settings[flag]}` into a --settings file" in capsys.readouterr().err
    file = tmp_path / "settings.yaml"
    file.write_text(TRAIN.settings[flag])
    form = OrderForm(data=tmp_path, folder=tmp_path)
    assert read_settings(file, form)[0] != form


def test_all_bad_flags_of_a_line_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--rect", "--cos-lr", "--patience=5", "--epochs", "3", "--nonsense", "--evolve", "300"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    for words in (
        f"--rect is YOLOv5's and not here: {TRAIN.refused['--rect']}",
        f"--evolve is YOLOv5's and not here: {TRAIN.refused['--evolve']}",
        "--cos-lr and --patience are no flags here",
        "there is no --nonsense; leave --rect and --evolve out",
        "write lines such as `cosine: true` and `patience: 50` into a --settings file",
    ):
        assert words in told
    assert "--epochs" not in told


@pytest.mark.parametrize(
    ("line", "understood", "flags"),
    [
        ("train --cache --epochs 3", "train --epochs 3", ["--cache"]),
        ("train --cache ram --data x", "train --data x", ["--cache"]),
        ("train --cache=disk --local_rank=0 --local-rank 1", "train", ["--cache", "--local_rank", "--local-rank"]),
        ("train --nosave --noplots --exist-ok", "train", ["--nosave", "--noplots", "--exist-ok"]),
        ("train --imgsz 640 480", "train --imgsz 640", ["--imgsz 640 480"]),
        ("train --img 640 --batch -1", "train --img 640 --batch -1", []),
        ("train --img abc", "train --img abc", []),
        ("val --verbose --name x --half", "val", ["--verbose", "--name", "--half"]),
        ("detect a.jpg --save-txt --classes 0 2 b.jpg", "detect a.jpg --classes 0,2 b.jpg", ["--save-txt"]),
        ("watch --cache", "watch --cache", []),
    ],
)
def test_flags_that_change_nothing_are_taken_with_a_sentence(line: str, understood: str, flags: list[str]) -> None:
    arguments, words = translated(line.split())
    assert arguments == understood.split()
    assert [one.partition(": ")[0] for one in words] == flags
    assert translated([]) == ([], [])


def test_no_flag_of_a_command_is_called_foreign() -> None:
    commands: dict[str, Any] = dict(build().commands)
    for name, foreign in FOREIGN.items():
        own = {flag for one in commands[name].params for flag in one.opts}
        assert not own & all_flags(foreign)


def all_flags(foreign: Foreign) -> set[str]:
    return {*foreign.told, *foreign.settings, *foreign.refused}


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
