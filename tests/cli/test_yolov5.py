"""Flags of YOLOv5 that are no flags here: taken with a sentence, or answered with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomph.cli import run
from oomph.cli._main import build
from oomph.cli._yolov5 import DETECT, TRAIN, VAL, Foreign, translated
from oomph.detect import OrderForm, read_settings

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
