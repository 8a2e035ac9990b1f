"""Training on two ranks that torchrun starts, with gloo between them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import oomph
from oomph.detect import EmbeddedSize, Ranks, join_ranks, read_results, write_embedded

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="gloo and signals as Linux has them")
REPO = Path(__file__).parent.parent.parent
LIMIT = 240


def torchrun(*arguments: str, folder: Path) -> list[str]:
    ours = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*ours, "--log-dir", str(folder / "logs"), "--redirects", "3", *arguments]


def environment() -> dict[str, str]:
    source = Path(oomph.__file__).parent.parent
    return {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{REPO}", "OMP_NUM_THREADS": "1"}


def said(folder: Path, rank: int, name: str = "stderr") -> str:
    """What a rank wrote."""
    return "".join(path.read_text() for path in (folder / "logs").glob(f"*/attempt_0/{rank}/{name}.log"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_embedded(tmp_path_factory.mktemp("data"), EmbeddedSize(train=22, val=7))


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    command = torchrun("-m", "tests.detect.rank", str(data), str(folder), folder=folder)
    done = subprocess.run(command, env=environment(), cwd=folder, timeout=LIMIT, check=False, capture_output=True)
    assert done.returncode == 0, said(folder, 0) + said(folder, 1)
    return folder


def left(folder: Path, name: str, rank: int = 0) -> Any:
    return torch.load(folder / f"{name}-{rank}.pt", weights_only=True)


def assert_same(ours: Any, theirs: Any, tolerance: float = 0.0) -> None:
    for part in ("model", "average"):
        assert ours[part].keys() == theirs[part].keys()
        for name, value in theirs[part].items():
            if tolerance:
                torch.testing.assert_close(ours[part][name], value, atol=tolerance, rtol=tolerance)
            else:
                assert torch.equal(ours[part][name], value), name


def test_two_ranks_learn_what_one_process_learns(runs: Path) -> None:
    assert_same(left(runs, "plain"), left(runs, "alone"), 1e-5)
    start = left(runs, "plain")["average"]
    assert any(not torch.equal(start[name], value) for name, value in left(runs, "plain")["model"].items())


@pytest.mark.parametrize("name", ["plain", "fault", "resumed"])
def test_ranks_end_with_the_same_weights_and_rows(runs: Path, name: str) -> None:
    assert_same(left(runs, name, 1), left(runs, name))
    assert left(runs, name, 1)["rows"] == left(runs, name)["rows"]


def test_an_out_of_memory_of_one_rank_is_survived_by_all(runs: Path) -> None:
    assert [left(runs, "fault", rank)["retries"] for rank in range(2)] == [1, 1]
    assert_same(left(runs, "fault"), left(runs, "plain"), 1e-5)
    # Each rank has its own memory, so it has its own Record: the fault was the second one's.
    records = [oomph.Record.load(runs / "fault" / name) for name in ("record.jsonl", "record-1.jsonl")]
    assert [sum(event["event"] == "oom" for event in record.events) for record in records] == [0, 1]


def test_all_ranks_stop_after_the_same_update_and_go_on_bit_for_bit(runs: Path) -> None:
    assert [left(runs, "stop", rank)["iterations"] for rank in range(2)] == [4, 4]
    assert_same(left(runs, "resumed"), left(runs, "plain"))


def test_validation_is_spread_over_the_ranks_and_scored_once(runs: Path) -> None:
    ours, theirs = (read_results(runs / name / "predictions.npz")[0] for name in ("plain", "alone"))
    assert len(ours) == len(theirs) == 7
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.truth, other.truth)
    names = {path.name for path in (runs / "plain").iterdir()}
    assert names == {path.name for path in (runs / "alone").iterdir()} | {"record-1.jsonl"}


def test_a_rank_that_dies_ends_the_command_with_a_reason(data: Path, tmp_path: Path) -> None:
    wanted = ["train", "--data", str(data), "--cfg", "n", "--img", "64", "--batch", "8", "--epochs", "99"]
    command = torchrun("-m", "oomph", *wanted, "--device", "cpu", "--workers", "1", folder=tmp_path)
    with subprocess.Popen(command, env=environment(), cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + LIMIT
        while "epoch 1:" not in said(tmp_path, 0, "stdout"):
            assert process.poll() is None, said(tmp_path, 0)
            assert time.monotonic() < until
            time.sleep(0.1)
        ranks = {one.environ()["RANK"]: one for one in psutil.Process(process.pid).children()}
        ranks["1"].kill()
        assert process.wait(60) == 1
        assert not psutil.pid_exists(ranks["0"].pid)
    assert "rank" in said(tmp_path, 0)
    assert "Traceback" not in said(tmp_path, 0)
    assert said(tmp_path, 1, "stdout") == ""
    assert (tmp_path / "runs" / "train" / "exp" / "weights" / "state.pt").is_file()
    assert not (tmp_path / "runs" / "train" / "exp2").exists()


def test_a_batch_that_can_t_be_shared_out_is_refused() -> None:
    assert Ranks(0, 2).share(8) == 4
    assert Ranks(0, 2).share(-1) == -1
    with pytest.raises(oomph.UsageError, match="a batch of 7 can't be shared out evenly to 2 ranks"):
        Ranks(0, 2).share(7)


def test_ranks_take_the_gpus_of_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Ranks(1, 2, 1, 2)
    assert Ranks().device_name("cuda:1") == "cuda:1"
    with pytest.raises(oomph.UsageError, match="names one GPU"):
        two.device_name("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert two.device_name(None) == "cuda:1"
    assert two.device_name("cpu") == "cpu"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(oomph.UsageError, match="2 ranks on this machine, and torch sees 1 GPUs"):
        two.device_name(None)


def test_without_torchrun_there_is_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with join_ranks(None) as ranks:
        assert ranks == Ranks()
        assert (ranks.once(lambda: 3), ranks.summed([1, 2]), ranks.collect("a")) == (3, [1, 2], ["a"])
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(oomph.UsageError, match="LOCAL_RANK"), join_ranks(None):
        pass
