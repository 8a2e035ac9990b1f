"""YOLOv5 flags that oomph doesn't have: ignored with a note, or rejected with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomph.cli import run
from oomph.cli._main import build
from oomph.cli._yolov5 import DETECT, TRAIN, VAL, translate_yolov5
from oomph.detect import TrainConfig, read_settings

FOREIGN = {"train": TRAIN, "val": VAL, "detect": DETECT}
REQUIRED = {"train": [], "val": ["--weights", "w.pt", "--data", "d.yaml"], "detect": ["a.jpg", "--weights", "w.pt"]}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("command", "flag"), [(name, flag) for name, flags in FOREIGN.items() for flag in flags.rejected]
)
def test_an_unsupported_flag_is_rejected_with_the_reason(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, *REQUIRED[command], flag, "1"]) == 2
    assert f"YOLOv5's {flag} is not supported: {FOREIGN[command].rejected[flag]}" in capsys.readouterr().err


@pytest.mark.parametrize("flag", sorted(TRAIN.settings))
def test_a_flag_that_is_a_setting_is_answered_with_a_valid_line(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", flag, "1"]) == 2
    line = TRAIN.settings[flag]
    message = f"{flag} is a setting, not a flag; write a line such as `{line}` into a --settings file"
    assert message in capsys.readouterr().err
    file = tmp_path / "settings.yaml"
    file.write_text(line)
    config = TrainConfig(data=tmp_path, run_dir=tmp_path)
    assert read_settings(file, config)[0] != config


def test_all_unknown_flags_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--rect", "--cos-lr", "--patience=5", "--epochs", "3", "--nonsense", "--evolve", "300"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    for part in (
        f"YOLOv5's --rect is not supported: {TRAIN.rejected['--rect']}",
        f"YOLOv5's --evolve is not supported: {TRAIN.rejected['--evolve']}",
        "--cos-lr and --patience are settings, not flags",
        "there is no --nonsense; remove --rect and --evolve",
        "write lines such as `cos_lr: true` and `patience: 50` into a --settings file",
    ):
        assert part in message
    assert "--epochs" not in message


@pytest.mark.parametrize(
    ("line", "translated", "noted"),
    [
        ("train --cache --epochs 3", "train --epochs 3", ["--cache is ignored"]),
        ("train --cache ram --data x", "train --data x", ["--cache is ignored"]),
        (
            "train --cache=disk --local_rank=0 --local-rank 1",
            "train",
            ["--cache is ignored", "--local_rank is ignored", "--local-rank is ignored"],
        ),
        (
            "train --nosave --noplots --exist-ok",
            "train",
            ["--nosave is ignored", "--noplots is ignored", "--exist-ok is ignored"],
        ),
        ("train --imgsz 640 480", "train --imgsz 640", ["--imgsz 640 480"]),
        ("train --img 640 --batch -1", "train --img 640 --batch -1", []),
        ("train --img abc", "train --img abc", []),
        ("val --verbose --name x --project y", "val --name x", ["--verbose is ignored", "--project is ignored"]),
        ("detect a.jpg --save-txt --classes 0 2 b.jpg", "detect a.jpg --classes 0,2 b.jpg", ["--save-txt is ignored"]),
        ("watch --cache", "watch --cache", []),
        ("", "", []),
    ],
)
def test_flags_without_effect_are_removed_with_a_note(line: str, translated: str, noted: list[str]) -> None:
    arguments, notes = translate_yolov5(line.split())
    assert arguments == translated.split()
    assert [note.partition(": ")[0] for note in notes] == noted


def test_no_flag_of_a_command_is_foreign() -> None:
    commands: dict[str, Any] = dict(build().commands)
    for name, foreign in FOREIGN.items():
        flags = {flag for parameter in commands[name].params for flag in parameter.opts}
        assert not flags & {*foreign.ignored, *foreign.settings, *foreign.rejected}
