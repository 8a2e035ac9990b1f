"""Runs of `oomph train` under real conditions: bad data, hostile files, interruptions and full disks."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from oomph.cli import run
from oomph.detect import DemoSize, read_weights, write_demo_dataset

TINY = ["--cfg", "n", "--img", "64", "--batch", "4", "--epochs", "1", "--device", "cpu", "--workers", "1"]


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@dataclass(frozen=True)
class BadDataset:
    """A dataset with every issue of real datasets."""

    yaml: Path
    root: Path
    mark: Path  # the file that its `download:` would create


GOOD = "0 0.3 0.3 0.2 0.4\n1 0.6 0.6 0.3 0.2\n0 0.5 0.7 0.1 0.1\n"


def write_image(file: Path, label: str | None) -> Path:
    """Write an image, and its label file unless the label is None."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(file.name))
    Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(file)
    if label is not None:
        label_file = Path(str(file).replace("/images/", "/labels/")).with_suffix(".txt")
        label_file.parent.mkdir(parents=True, exist_ok=True)
        label_file.write_text(label)
    return file


def write_bad_dataset(folder: Path) -> BadDataset:
    root = folder / "datasets" / "My Bilder ä"
    train = root / "images" / "train"
    for number in range(20):
        write_image(train / f"good {number} ö.png", GOOD)
    write_image(train / "no label.png", None)
    write_image(train / "empty label.png", "")
    skipped = "7 0.5 0.5 0.1 0.1\n0 1.5 0.5 0.1 0.1\n1 0.5 0.5 0 0.1\n"  # class, outside, zero size
    fixed = "0 0.95 0.5 0.2 0.4\n1 0.1 0.2 0.5 0.1 0.3 0.8\n"  # over the edge, polygon
    twice = "1 0.5 0.5 0.2 0.2\n1 0.5 0.5 0.2 0.2\n"
    write_image(train / "雨.png", skipped + fixed + twice)
    (train / "broken.png").write_bytes((train / "good 0 ö.png").read_bytes()[:20])
    far = write_image(folder / "far away" / "images" / "a.png", GOOD)
    listed = write_image(root / "images" / "more" / "b c.png", GOOD)
    lines = ["./images/more/b c.png", str(listed), "images/none.png", "# a comment", ""]
    (root / "list.txt").write_text("\n".join(lines))
    (folder / "project").mkdir()
    mark = folder / "mark"
    text = f"""
path: ../datasets/My Bilder ä
train: [images/train, list.txt, "{far.parent}"]
val: images/train
names: {{0: кот, 1: chien}}
download: touch {mark}
"""
    file = folder / "project" / "data.yaml"
    file.write_text(text, encoding="utf-8")
    return BadDataset(file, root, mark)


@pytest.mark.medium
@pytest.mark.usefixtures("quick_predictions")
def test_a_bad_dataset_trains_and_its_issues_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = write_bad_dataset(tmp_path)
    assert run(["train", "--data", str(bad.yaml), *TINY]) == 0
    shown = capsys.readouterr().out.splitlines()
    labels, train = bad.root / "labels/train", bad.root / "images/train"
    expected = [
        "train: 25 images, 69 boxes",  # 20 good, 2 without objects, 1 with three boxes, 1 listed, 1 far away
        f"train: 1 box skipped: class not in 0 to 1 ({labels}/雨.txt:1)",
        f"train: 1 box skipped: outside the image ({labels}/雨.txt:2)",
        f"train: 1 box skipped: zero width or height ({labels}/雨.txt:3)",
        f"train: 1 image skipped: listed but missing ({bad.root}/list.txt:3 'images/none.png')",
        f"train: 1 box clipped at the edge of the image ({labels}/雨.txt:4)",
        f"train: 1 box converted from a polygon ({labels}/雨.txt:5)",
        f"train: 1 box listed twice: used once ({labels}/雨.txt:7)",
        f"train: 1 image listed twice: used once ({bad.root}/images/more/b c.png)",
        "train: 1 image has no objects",
        f"train: 2 images have no label file: used as background (first: {labels}/broken.txt)",
        f"val: 2 images have no label file: used as background (first: {labels}/broken.txt)",
        f"val: 1 box skipped: zero width or height ({labels}/雨.txt:3)",
        "24 of 24 val images are also train images: the mAP is meaningless",
        "`download:` of the yaml was not run: " + f"touch {bad.mark}"[:80],
    ]
    for line in expected:
        assert line in shown, line
    assert len([line for line in shown if f"({train}/broken.png)" in line and "1 image skipped" in line]) == 2
    assert not bad.mark.exists()
    issues = json.loads(Path("runs/train/exp/data_issues.json").read_text())
    assert sum(issue["count"] for issue in issues["train"] if issue["broken"]) == 5
    weights = "runs/train/exp/weights/last.pt"
    assert read_weights(Path(weights)).names == ("кот", "chien")
    # With a list of names in the yaml.
    listing = bad.yaml.with_name("list names.yaml")
    listing.write_text(bad.yaml.read_text(encoding="utf-8").replace("{0: кот, 1: chien}", "[кот, chien]"))
    assert run(["val", "--weights", weights, "--data", str(listing), "--img", "64", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 23


def test_a_dataset_with_too_many_broken_boxes_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = write_bad_dataset(tmp_path)
    (bad.root / "labels/train/雨.txt").write_text("9 0.5 0.5 0.1 0.1\n" * 8)
    assert run(["train", "--data", str(bad.yaml), *TINY]) == 2
    message = capsys.readouterr().err
    assert "8 of 74 boxes in" in message
    assert "class not in 0 to 1" in message
    assert "set `max_broken_fraction` above 0.1 in the settings" in message
    assert message.count("\n") == 1


def test_a_train_split_without_boxes_is_rejected_and_a_val_split_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_demo_dataset(tmp_path / "data", DemoSize(train=8, val=2))
    for split in ("val", "train"):
        (tmp_path / "data/labels" / split).rename(tmp_path / split)
    assert run(["train", "--data", str(data), *TINY]) == 2
    captured = capsys.readouterr()
    assert "val has no boxes: the mAP will be 0" in captured.out
    assert "none of the 8 train images of" in captured.err
    assert "put their labels into files such as" in captured.err
    assert captured.err.count("\n") == 1


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self._mark}'",)


@pytest.mark.parametrize("file_format", ["zip", "pickle"])
def test_a_hostile_checkpoint_is_rejected_and_executes_nothing(
    file_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_demo_dataset(tmp_path / "data", DemoSize(train=4, val=4))
    mark, file = tmp_path / "mark", tmp_path / "evil.pt"
    if file_format == "zip":
        torch.save({"model": Evil(mark), "epoch": 1}, file)
    else:
        file.write_bytes(pickle.dumps({"model": Evil(mark)}))
    assert run(["train", "--data", str(data), "--weights", str(file), *TINY]) == 2
    message = capsys.readouterr().err
    assert str(file) in message
    assert message.count("\n") == 1
    assert not mark.exists()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "oomph", "train", *arguments]


@pytest.mark.medium
@pytest.mark.usefixtures("quick_predictions")
def test_a_killed_run_is_resumed_without_other_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_demo_dataset(tmp_path / "data", DemoSize(train=8, val=4))
    settings = tmp_path / "mine.yaml"
    settings.write_text("seed: 3\nmosaic: 0.5\ncos_lr: true\nlabel_smoothing: 0.1\nfreeze: 1\nsingle_cls: true\n")
    flags = ["--data", "data/data.yaml", *TINY, "--epochs", "2", "--settings", "mine.yaml", "--name", "mine"]
    with subprocess.Popen(command(*flags), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("epoch 1:"):
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
    assert any(line.startswith("settings: ") and "seed 3 (default 0)" in line for line in lines)
    folder = Path("runs/train/mine")
    saved = yaml.safe_load((folder / "settings.yaml").read_text())
    assert (saved["seed"], saved["mosaic"], saved["cos_lr"]) == (3, 0.5, True)
    data.rename(data.with_name("gone.yaml"))
    assert run(["train", "--resume"]) == 2  # the dataset is still needed
    assert f"there is no file '{data}'" in capsys.readouterr().err
    data.with_name("gone.yaml").rename(data)
    Path("another").mkdir()
    os.chdir("another")
    assert run(["train", "--resume", "../runs/train/mine/weights/last.pt", "--workers", "2", "--img", "64"]) == 0
    shown = capsys.readouterr().out
    assert "resuming ../runs/train/mine" in shown
    assert "--workers changed from 1 to 2" in shown
    assert "resumed at iteration 2 of 4" in shown
    assert "seed 3 (default 0)" in shown
    os.chdir(tmp_path)
    assert (folder / "results.csv").read_text().count("\n") == 3
    assert read_weights(folder / "weights" / "last.pt").names == ("item",)
    for more, message in (
        (["--batch", "8"], "--batch is 8, but the run in runs/train/mine was started with 4; remove it"),
        (["--data", "other.yaml"], "--data is other.yaml"),
        (["--settings", str(folder / "settings.yaml"), "--epochs", "3"], "--epochs is 3"),
    ):
        assert run(["train", "--resume", *more]) == 2
        assert message in capsys.readouterr().err
    settings.write_text("seed: 4")
    assert run(["train", "--resume", "mine", "--settings", "mine.yaml"]) == 2
    assert "the settings in mine.yaml differ from those of the run" in capsys.readouterr().err


@pytest.mark.large
def test_ctrl_c_prints_the_command_that_resumes(tmp_path: Path) -> None:
    write_demo_dataset(tmp_path / "data", DemoSize(train=4, val=1))
    flags = command("--data", "data/data.yaml", *TINY, "--epochs", "90", "--img", "50", "--name", "my run")
    with subprocess.Popen(flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("epoch 1:"):
                process.send_signal(signal.SIGINT)
                break
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "stopped; resume with: oomph train --resume 'runs/train/my run'"
    assert "the image size 50 is not a multiple of 32: images are trained at 64\n" in lines
    assert any(line.startswith("val: 1 image, ") for line in lines)


@pytest.mark.large
def test_a_closed_pipe_stops_training_with_a_checkpoint_and_no_traceback(tmp_path: Path) -> None:
    write_demo_dataset(tmp_path / "data", DemoSize(train=4, val=2))
    flags = command("--data", "data/data.yaml", *TINY, "--epochs", "50")
    with subprocess.Popen(flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("epoch 1:"):
                break
        process.stdout.close()
        assert process.wait(60) == 1
        report, hint = process.stderr.read().splitlines()
        assert report == "report: runs/train/exp/report.html"
        assert hint == "stopped; resume with: oomph train --resume runs/train/exp"
    assert (tmp_path / "runs/train/exp/weights/state.pt").exists()


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


@pytest.mark.large
def test_a_full_disk_costs_a_warning_but_not_the_run(tmp_path: Path) -> None:
    write_demo_dataset(tmp_path / "data", DemoSize(train=4, val=4))
    process = subprocess.run(
        command("--data", "data/data.yaml", *TINY),
        capture_output=True,
        text=True,
        preexec_fn=limit_file_size,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    for name in ("the checkpoint", "last.pt"):
        assert f"{name} could not be written: File too large. Training continues." in process.stderr
    folder = tmp_path / "runs/train/exp"
    assert (folder / "results.csv").read_text().count("\n") == 2
    assert list((folder / "weights").iterdir()) == []
