"""Runs of the command as users have them: ugly data, hostile files, interruptions and full disks."""

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
from oomph.detect import EmbeddedSize, read_weights, write_embedded

TINY = ["--cfg", "n", "--img", "64", "--batch", "4", "--epochs", "1", "--device", "cpu", "--workers", "1"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@dataclass(frozen=True)
class Ugly:
    """A data set with every fault that users' data sets have."""

    yaml: Path
    root: Path
    mark: Path  # what its `download:` would make


GOOD = "0 0.3 0.3 0.2 0.4\n1 0.6 0.6 0.3 0.2\n0 0.5 0.7 0.1 0.1\n"


def picture(file: Path, label: str | None) -> Path:
    """An image, and its label file where there is one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(file.name))
    Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(file)
    if label is not None:
        place = Path(str(file).replace("/images/", "/labels/")).with_suffix(".txt")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(label)
    return file


def make_ugly(folder: Path) -> Ugly:
    root = folder / "datasets" / "My Bilder ä"
    train = root / "images" / "train"
    for number in range(20):
        picture(train / f"good {number} ö.png", GOOD)
    picture(train / "no label.png", None)
    picture(train / "empty label.png", "")
    bad = "7 0.5 0.5 0.1 0.1\n0 1.5 0.5 0.1 0.1\n1 0.5 0.5 0 0.1\n"  # class, outside, no size
    mended = "0 0.95 0.5 0.2 0.4\n1 0.1 0.2 0.5 0.1 0.3 0.8\n"  # over the edge, a polygon
    twice = "1 0.5 0.5 0.2 0.2\n1 0.5 0.5 0.2 0.2\n"
    picture(train / "雨.png", bad + mended + twice)
    (train / "broken.png").write_bytes((train / "good 0 ö.png").read_bytes()[:20])
    far = picture(folder / "far away" / "images" / "a.png", GOOD)
    listed = picture(root / "images" / "more" / "b c.png", GOOD)
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
    return Ugly(file, root, mark)


def test_an_ugly_data_set_trains_with_a_correct_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ugly = make_ugly(tmp_path)
    assert run(["train", "--data", str(ugly.yaml), *TINY]) == 0
    told = capsys.readouterr().out.splitlines()
    labels, train = ugly.root / "labels/train", ugly.root / "images/train"
    expected = [
        "train: 25 images, 69 boxes",  # 20 good, 2 with nothing, 1 with three, 1 listed, 1 far away
        f"train: 1 box set aside: of a class that isn't one of 0 to 1 ({labels}/雨.txt:1)",
        f"train: 1 box set aside: outside the image ({labels}/雨.txt:2)",
        f"train: 1 box set aside: of no size ({labels}/雨.txt:3)",
        f"train: 1 image set aside: listed, but not there ({ugly.root}/list.txt:3 'images/none.png')",
        f"train: 1 box noticed: partly outside the image: cut at its edge ({labels}/雨.txt:4)",
        f"train: 1 box noticed: made from the corners of a polygon ({labels}/雨.txt:5)",
        f"train: 1 box noticed: written twice ({labels}/雨.txt)",
        f"train: 1 image noticed: listed twice ({ugly.root}/images/more/b c.png)",
        f"train: 1 label file noticed: empty: an image with nothing to find ({labels}/empty label.txt)",
        f"val: 1 box set aside: of no size ({labels}/雨.txt:3)",
        "24 of 24 val images are train images too: the mAP means nothing",
        "the data's `download:` was not run: " + f"touch {ugly.mark}"[:80],
    ]
    for line in expected:
        assert line in told, line
    missing = [line for line in told if "not there: an image with nothing to find" in line]
    assert missing == [
        f"{split}: 2 label files noticed: not there: an image with nothing to find ({labels}/broken.txt)"
        for split in ("train", "val")
    ]
    assert len([line for line in told if f"({train}/broken.png)" in line and "1 image set aside" in line]) == 2
    assert not ugly.mark.exists()
    aside = json.loads(Path("runs/train/exp/set_aside.json").read_text())
    assert sum(one["count"] for one in aside["train"] if one["broken"]) == 5
    weights = "runs/train/exp/weights/last.pt"
    assert read_weights(Path(weights)).names == ("кот", "chien")
    # The same with a list of names.
    listing = ugly.yaml.with_name("list names.yaml")
    listing.write_text(ugly.yaml.read_text(encoding="utf-8").replace("{0: кот, 1: chien}", "[кот, chien]"))
    assert run(["val", "--weights", weights, "--data", str(listing), "--img", "64", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 23


def test_too_much_that_is_broken_is_a_clear_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ugly = make_ugly(tmp_path)
    (ugly.root / "labels/train/雨.txt").write_text("9 0.5 0.5 0.1 0.1\n" * 8)
    assert run(["train", "--data", str(ugly.yaml), *TINY]) == 2
    told = capsys.readouterr().err
    assert "8 of 74 boxes of" in told
    assert "of a class that isn't one of 0 to 1" in told
    assert "set `tolerated` above 0.1 in the settings" in told
    assert told.count("\n") == 1


def test_data_without_any_box_is_a_clear_stop_and_a_val_split_without_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_embedded(tmp_path / "data", EmbeddedSize(train=8, val=2))
    (tmp_path / "data/labels/val").rename(tmp_path / "val")
    assert run(["train", "--data", str(data), *TINY]) == 0
    assert "val has no boxes at all: the mAP will be 0" in capsys.readouterr().out
    (tmp_path / "data/labels/train").rename(tmp_path / "train")
    assert run(["train", "--data", str(data), *TINY]) == 2
    told = capsys.readouterr().err
    assert "the 8 train images of" in told
    assert "have no boxes at all; labels were looked for in such files as" in told
    assert told.count("\n") == 1


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self._mark}'",)


@pytest.mark.parametrize("how", ["zip", "plain"])
def test_a_hostile_checkpoint_is_refused_and_runs_nothing(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_embedded(tmp_path / "data", EmbeddedSize(train=4, val=4))
    mark, file = tmp_path / "mark", tmp_path / "evil.pt"
    if how == "zip":
        torch.save({"model": Evil(mark), "epoch": 1}, file)
    else:
        file.write_bytes(pickle.dumps({"model": Evil(mark)}))
    assert run(["train", "--data", str(data), "--weights", str(file), *TINY]) == 2
    told = capsys.readouterr().err
    assert str(file) in told
    assert told.count("\n") == 1
    assert not mark.exists()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "oomph", "train", *arguments]


def test_a_killed_run_is_resumed_without_any_other_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_embedded(tmp_path / "data", EmbeddedSize(train=8, val=4))
    settings = tmp_path / "mine.yaml"
    settings.write_text("seed: 3\nmosaic: 0.5\ncos_lr: true\nlabel_smoothing: 0.1\nfreeze: 1\nsingle_cls: true\n")
    asked = ["--data", "data/data.yaml", *TINY, "--epochs", "2", "--settings", "mine.yaml", "--name", "mine"]
    with subprocess.Popen(command(*asked), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begun = []
        for line in process.stdout:
            begun.append(line)
            if line.startswith("epoch 1:"):
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
    assert any(line.startswith("settings: ") and "seed 3 (not 0)" in line for line in begun)
    folder = Path("runs/train/mine")
    saved = yaml.safe_load((folder / "settings.yaml").read_text())
    assert (saved["seed"], saved["augmentation"]["mosaic"], saved["cosine"]) == (3, 0.5, True)
    data.rename(data.with_name("gone.yaml"))
    assert run(["train", "--resume"]) == 2  # the data set is needed, wherever it is asked for
    assert f"there is no file '{data}'" in capsys.readouterr().err
    data.with_name("gone.yaml").rename(data)
    Path("another").mkdir()
    os.chdir("another")
    assert run(["train", "--resume", "../runs/train/mine/weights/last.pt", "--workers", "2", "--img", "64"]) == 0
    told = capsys.readouterr().out
    assert "resuming ../runs/train/mine" in told
    assert "--workers is 2 from now on, and was 1" in told
    assert "resumed at iteration 2 of 4" in told
    assert "seed 3 (not 0)" in told
    os.chdir(tmp_path)
    assert (folder / "results.csv").read_text().count("\n") == 3
    assert read_weights(folder / "weights" / "last.pt").names == ("item",)
    for more, words in (
        (["--batch", "8"], "--batch is 8, and the run in runs/train/mine was begun with 4; leave it out"),
        (["--data", "other.yaml"], "--data is other.yaml"),
        (["--settings", str(folder / "settings.yaml"), "--epochs", "3"], "--epochs is 3"),
    ):
        assert run(["train", "--resume", *more]) == 2
        assert words in capsys.readouterr().err
    settings.write_text("seed: 4")
    assert run(["train", "--resume", "mine", "--settings", "mine.yaml"]) == 2
    assert "mine.yaml has other settings than the run" in capsys.readouterr().err


def test_after_ctrl_c_the_command_that_goes_on_is_said(tmp_path: Path) -> None:
    write_embedded(tmp_path / "data", EmbeddedSize(train=4, val=1))
    asked = command("--data", "data/data.yaml", *TINY, "--epochs", "90", "--img", "50", "--name", "my run")
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line)
            if line.startswith("epoch 1:"):
                process.send_signal(signal.SIGINT)
                break
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "stopped; go on with: oomph train --resume 'runs/train/my run'"
    assert "images are trained at 64 pixels a side: 50 is no multiple of 32\n" in told
    assert any(line.startswith("val: 1 image, ") for line in told)


def no_large_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def test_a_full_disk_costs_a_warning_and_not_the_run(tmp_path: Path) -> None:
    write_embedded(tmp_path / "data", EmbeddedSize(train=4, val=4))
    done = subprocess.run(
        command("--data", "data/data.yaml", *TINY),
        capture_output=True,
        text=True,
        preexec_fn=no_large_files,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    words = "could not be written: File too large. Training goes on."
    for what in ("the checkpoint", "last.pt"):
        assert f"{what} {words}" in done.stderr
    folder = tmp_path / "runs/train/exp"
    assert (folder / "results.csv").read_text().count("\n") == 2
    assert list((folder / "weights").iterdir()) == []


def test_runs_that_begin_together_get_folders_of_their_own() -> None:
    code = """
import sys
from oomph.cli._runs import claimed_folder
print("ready", flush=True)
sys.stdin.readline()
with claimed_folder("both") as folder:
    (folder / "weights").mkdir()
    print(folder)
"""
    begun = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for one in begun:
        assert one.stdout is not None
        one.stdout.readline()
    for one in begun:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    told = {one.communicate()[0].strip() for one in begun}
    assert told == {"runs/train/both", *(f"runs/train/both{number}" for number in (2, 3, 4))}


def test_a_run_that_does_not_come_to_be_leaves_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--data", "none.yaml"]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert list(Path("runs/train").iterdir()) == []


def test_a_reader_that_leaves_ends_training_with_its_checkpoint_and_no_traceback(tmp_path: Path) -> None:
    write_embedded(tmp_path / "data", EmbeddedSize(train=4, val=2))
    asked = command("--data", "data/data.yaml", *TINY, "--epochs", "50")
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("epoch 1:"):
                break
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == "stopped; go on with: oomph train --resume runs/train/exp\n"
    assert (tmp_path / "runs/train/exp/weights/state.pt").exists()
