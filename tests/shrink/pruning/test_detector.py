from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from oomph.cli import run
from oomph.detect import (
    DemoSize,
    HeadOutputs,
    Yolov5,
    load_weights,
    read_weights,
    save_weights,
    scaled_widths,
    write_demo_dataset,
    yolov5,
)
from oomph.errors import UsageError
from oomph.shrink.pruning import count_operations, prune_network

IMAGE = torch.zeros(1, 3, 64, 64)
NAMES = ("disc", "square", "triangle", "cross")
COMMAND = ["shrink", "prune", "--weights", "n.pt", "--data", "data/data.yaml", "--img", "64", "--batch", "8"]


def operations(network: Yolov5) -> int:
    return count_operations(HeadOutputs(network), (IMAGE,))


def pruned_to(network: Yolov5, ops: float) -> Yolov5:
    limit = ops * operations(network)
    pruned = prune_network(network, lambda other: operations(other) <= limit)
    assert pruned is not None
    return pruned


@pytest.fixture
def demo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_demo_dataset(Path("data"), DemoSize(train=24, val=4))
    torch.manual_seed(0)
    save_weights(Path("n.pt"), yolov5("n", 4), NAMES)


@pytest.mark.medium
@pytest.mark.parametrize("size", ["n", "mobilenet", "depthwise"])
def test_a_detector_loses_channels_and_keeps_its_outputs(size: str) -> None:
    network = yolov5(size, 4)
    pruned = pruned_to(network, 0.5)
    assert 0.3 < operations(pruned) / operations(network) <= 0.5
    levels, pruned_levels = network(torch.rand(2, 3, 64, 64)), pruned(torch.rand(2, 3, 64, 64))
    assert [level.shape for level in levels] == [level.shape for level in pruned_levels]
    assert network.widths is None


def test_a_shuffled_network_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="can't be followed through its operations"):
        pruned_to(yolov5("shufflenet", 4), 0.5)


def test_no_cut_is_enough_for_an_impossible_limit() -> None:
    assert prune_network(yolov5("n", 4), lambda _: False) is None


def test_a_pruned_detector_is_saved_as_widths_and_weights(tmp_path: Path) -> None:
    pruned = pruned_to(yolov5("n", 4), 0.5).eval()
    save_weights(tmp_path / "pruned.pt", pruned, NAMES)
    weights = read_weights(tmp_path / "pruned.pt")
    assert (weights.size, weights.classes, weights.widths) == ("n", 4, pruned.widths)
    assert torch.equal(weights.build().eval()(IMAGE)[0], pruned(IMAGE)[0])
    content = torch.load(tmp_path / "pruned.pt", weights_only=True)
    assert content["widths"]["model.0.conv"] == [3, content["model"]["model.0.conv.weight"].shape[0]]
    with pytest.raises(UsageError, match="were pruned differently; build the network of the weights"):
        load_weights(yolov5("n", 4), weights)


def test_other_classes_take_all_layers_but_the_head(tmp_path: Path) -> None:
    pruned = yolov5("n", 4, widths=scaled_widths("n", 0.75))
    save_weights(tmp_path / "pruned.pt", pruned, NAMES)
    weights = read_weights(tmp_path / "pruned.pt")
    other = yolov5("n", 2, widths=weights.widths)
    assert "the head starts fresh" in (load_weights(other, weights) or "")
    first = "model.0.conv.weight"
    assert torch.equal(other.get_parameter(first), pruned.get_parameter(first))
    assert other(torch.rand(2, 3, 64, 64))[0].shape[-1] == 7


@pytest.mark.parametrize(
    ("layer", "value", "message"),
    [
        ("model.0.conv", [3, "x"], "the widths in .* are damaged"),
        ("model.0.conv", 3, "the widths in .* are damaged"),
        ("model.0.conv", [3, 0], "which this model doesn't have"),
        ("model.99.conv", [3, 8], "which this model doesn't have"),
        ("model.0.conv", [3, 10**9], "the tensors in .* are not those of YOLOv5"),
    ],
)
def test_damaged_widths_are_one_sentence(tmp_path: Path, layer: str, value: object, message: str) -> None:
    path = tmp_path / "pruned.pt"
    save_weights(path, yolov5("n", 4, widths=scaled_widths("n", 0.75)), NAMES)
    content = torch.load(path, weights_only=True)
    content["widths"][layer] = value
    torch.save(content, path)
    with pytest.raises(UsageError, match=message):
        read_weights(path)


@pytest.mark.large
@pytest.mark.usefixtures("demo_folder")
def test_a_killed_pruning_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--epochs", "2", "--steps", "2", "--ops", "0.5"]
    process = subprocess.Popen([sys.executable, "-m", "oomph", *COMMAND, *flags], stdout=subprocess.DEVNULL)
    folder = Path("runs/shrink/prune")
    state = folder / "step2/weights/state.pt"
    deadline = time.monotonic() + 120
    while not state.is_file() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    first = (folder / "step1/pruned.json").stat().st_mtime_ns
    assert run(["shrink", "prune", "--resume", "prune", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (folder / "step1/pruned.json").stat().st_mtime_ns == first
    before, after = result["variants"]
    assert after["parameters"] < 0.7 * before["parameters"]
    assert after["file_bytes"] < 0.7 * before["file_bytes"]
    assert after["training"]["predicted"] < before["training"]["predicted"]
    assert after["training"]["measured"] is None  # the CPU counts no allocations
    assert after["file"] == str(folder / "step2/weights/best.pt")
    rows = (folder / "step2/results.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "1", "2"]
    # The result is a file as any other: it is scored, trained further and resumed.
    assert run(["val", "--weights", after["file"], "--data", "data/data.yaml", "--img", "64"]) == 0
    more = ["--data", "data/data.yaml", "--img", "64", "--batch", "8", "--epochs", "1"]
    assert run(["train", "--weights", after["file"], *more]) == 0
    assert read_weights(Path("runs/train/exp/weights/last.pt")).widths == read_weights(Path(after["file"])).widths
    assert run(["train", "--resume"]) == 0


@pytest.mark.large
@pytest.mark.usefixtures("demo_folder")
def test_channels_go_until_it_trains_in_the_requested_memory(capsys: pytest.CaptureFixture[str]) -> None:
    # A context takes most of it: YOLOv5n needs 0.72 GiB there.
    limits = ["--memory", "0.68GiB", "--gpu", "RTX 3060", "--batch", "24"]
    flags = [*limits, "--epochs", "1", "--img", "128", "--json"]
    assert run([*COMMAND, *flags]) == 0
    before, after = json.loads(capsys.readouterr().out)["variants"]
    assert after["training"]["predicted"] < 0.75 * before["training"]["predicted"]
    assert before["training"]["target"] == "GeForce RTX 3060 12GB"


@pytest.mark.medium
@pytest.mark.usefixtures("demo_folder")
@pytest.mark.parametrize(
    ("flags", "message", "code"),
    [
        (["--ops", "1.5"], "the fraction of operations is 1.5; use a number between 0 and 1", 2),
        (["--ops", "0.5", "--memory", "1GiB"], "pruning needs one target", 2),
        (
            ["--ops", "0.001"],
            "is small enough for 0.001 of the operations; use a larger --ops",
            3,
        ),
        pytest.param(
            ["--memory", "10MiB"],
            "is small enough for training in 10 MiB with batch 8; use a larger --memory (",
            3,
            marks=pytest.mark.large,
        ),
        (["--steps", "0"], "the number of steps is 0; use at least 1", 2),
        (["--weights", "no.pt"], "there is no file 'no.pt'", 2),
        (["--weights", "two.pt"], "the weights have 2 classes and the data has 4", 2),
        (["--weights", "other.pt"], "the tensors in other.pt are not those of YOLOv5", 2),
        (["--gpu", "RTX 9"], "RTX 9", 2),
        (["--device", "3"], "there is no GPU 3", 2),
        (["--resume", "no"], "there is no run 'no' of this method to resume; pass its folder or its name", 2),
    ],
)
def test_wrong_input_is_one_sentence(
    flags: list[str], message: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"weight": torch.zeros(3)}, "other.pt")
    save_weights(Path("two.pt"), yolov5("n", 2), list("ab"))
    assert run([*COMMAND, *flags]) == code
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error
    assert not list(Path().glob("runs/shrink/*"))
