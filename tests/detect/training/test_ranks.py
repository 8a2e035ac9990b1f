"""Training on two ranks that torchrun starts, with gloo."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import oomph
from oomph.detect import DemoSize, read_results, write_demo_dataset

from ...ports import free_port

REPO = Path(__file__).parents[3]
TIMEOUT = 240
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="gloo and signals of Linux")


def torchrun(*arguments: str, folder: Path) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*launcher, "--log-dir", str(folder / "logs"), "--redirects", "3", *arguments]


def environment() -> dict[str, str]:
    source = Path(oomph.__file__).parent.parent
    return {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{REPO}", "OMP_NUM_THREADS": "1"}


def output(folder: Path, rank: int, name: str = "stderr") -> str:
    return "".join(path.read_text() for path in (folder / "logs").glob(f"*/attempt_0/{rank}/{name}.log"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo_dataset(tmp_path_factory.mktemp("data"), DemoSize(train=22, val=7))


def state(folder: Path, name: str, rank: int = 0) -> Any:
    return torch.load(folder / f"{name}-{rank}.pt", weights_only=True)


def assert_same_weights(first: Any, second: Any, tolerance: float = 0.0) -> None:
    for part in ("model", "ema"):
        assert first[part].keys() == second[part].keys()
        for name, value in second[part].items():
            torch.testing.assert_close(first[part][name], value, atol=tolerance, rtol=tolerance, msg=name)


@on_linux
@pytest.mark.large
def test_two_ranks_train_like_one_process_and_survive_faults(data: Path, tmp_path: Path) -> None:
    command = torchrun("-m", "tests.detect.training.rank", str(data), str(tmp_path), folder=tmp_path)
    process = subprocess.run(
        command, env=environment(), cwd=tmp_path, timeout=TIMEOUT, check=False, capture_output=True
    )
    assert process.returncode == 0, output(tmp_path, 0) + output(tmp_path, 1)
    assert_ranks_agree(tmp_path)
    assert_two_ranks_learn_what_one_process_learns(tmp_path)
    assert_all_ranks_survive_the_out_of_memory_error_of_one(tmp_path)
    assert_all_ranks_stop_after_the_same_update_and_resume_bit_for_bit(tmp_path)
    assert_validation_is_distributed_and_scored_once(tmp_path)


def assert_ranks_agree(runs: Path) -> None:
    for name in ("plain", "oom", "resumed"):
        assert_same_weights(state(runs, name, 1), state(runs, name))
        assert state(runs, name, 1)["rows"] == state(runs, name)["rows"]


def assert_two_ranks_learn_what_one_process_learns(runs: Path) -> None:
    assert_same_weights(state(runs, "plain"), state(runs, "single"), 1e-5)
    ema = state(runs, "plain")["ema"]
    assert any(not torch.equal(ema[name], value) for name, value in state(runs, "plain")["model"].items())


def assert_all_ranks_survive_the_out_of_memory_error_of_one(runs: Path) -> None:
    assert [state(runs, "oom", rank)["retries"] for rank in range(2)] == [1, 1]
    assert_same_weights(state(runs, "oom"), state(runs, "plain"), 1e-5)
    # Each rank has its own Record, and the error was rank 1's.
    records = [oomph.Record.load(runs / "oom" / name) for name in ("record.jsonl", "record-1.jsonl")]
    assert [sum(event["event"] == "oom" for event in record.events) for record in records] == [0, 1]


def assert_all_ranks_stop_after_the_same_update_and_resume_bit_for_bit(runs: Path) -> None:
    assert [state(runs, "stop", rank)["iterations"] for rank in range(2)] == [4, 4]
    assert_same_weights(state(runs, "resumed"), state(runs, "plain"))


def assert_validation_is_distributed_and_scored_once(runs: Path) -> None:
    results, expected = (read_results(runs / name / "predictions.npz")[0] for name in ("plain", "single"))
    assert len(results) == len(expected) == 7
    for result, other in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result.truth, other.truth)
    names = {path.name for path in (runs / "plain").iterdir()}
    assert names == {path.name for path in (runs / "single").iterdir()} | {"record-1.jsonl"}


@on_linux
@pytest.mark.large
def test_the_command_ends_with_a_reason_when_a_rank_dies(data: Path, tmp_path: Path) -> None:
    flags = ["train", "--data", str(data), "--cfg", "n", "--img", "64", "--batch", "8", "--epochs", "99"]
    command = torchrun("-m", "oomph", *flags, "--device", "cpu", "--workers", "1", folder=tmp_path)
    with subprocess.Popen(command, env=environment(), cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + TIMEOUT
        while "epoch 1:" not in output(tmp_path, 0, "stdout"):
            assert process.poll() is None, output(tmp_path, 0)
            assert time.monotonic() < deadline
            time.sleep(0.1)
        ranks = {child.environ()["RANK"]: child for child in psutil.Process(process.pid).children()}
        ranks["1"].kill()
        assert process.wait(60) == 1
        assert not psutil.pid_exists(ranks["0"].pid)
    assert "rank" in output(tmp_path, 0)
    assert "Traceback" not in output(tmp_path, 0)
    assert output(tmp_path, 1, "stdout") == ""
    assert (tmp_path / "runs" / "train" / "exp" / "weights" / "state.pt").is_file()
    assert not (tmp_path / "runs" / "train" / "exp2").exists()


@on_linux
@pytest.mark.large
def test_a_run_on_two_machines_continues_after_one_of_them_died(data: Path, tmp_path: Path) -> None:
    """Two agents of torchrun stand for two machines with a shared folder."""
    endpoint = f"127.0.0.1:{free_port()}"
    flags = ["train", "--data", str(data), "--cfg", "n", "--img", "64", "--batch", "8", "--epochs", "4"]
    flags += ["--device", "cpu", "--workers", "1", "--name", "pair", "--resume"]

    def start(machine: int) -> subprocess.Popen[bytes]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "pair", "--max-restarts", "3"]
        launcher += ["--rdzv-conf", f"is_host={int(machine == 0)}"]
        launcher += ["--local-addr", "127.0.0.1"]
        launcher += ["--log-dir", str(tmp_path / f"logs-{machine}"), "--redirects", "3"]
        # By default the survivor doesn't tell a machine that joins later where the ranks meet.
        variables = {**environment(), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return subprocess.Popen([*launcher, "-m", "oomph", *flags], env=variables, cwd=tmp_path)

    def printed() -> str:
        return "".join(path.read_text() for path in sorted(tmp_path.glob("logs-*/**/std*.log")))

    agents = [start(0), start(1)]
    try:
        wait_for(lambda: "epoch 1:" in printed(), agents, printed)
        ranks = psutil.Process(agents[1].pid).children(recursive=True)
        agents[1].kill()
        for process in ranks:
            process.kill()
        agents[1].wait(30)
        agents[1] = start(1)
        assert [agent.wait(TIMEOUT) for agent in agents] == [0, 0], printed()
    finally:
        for agent in agents:
            agent.terminate()
            agent.wait(60)
    runs = list((tmp_path / "runs" / "train").iterdir())
    assert [run.name for run in runs] == ["pair"]
    assert "resuming" in printed()
    epochs = [line.split(",")[0] for line in (runs[0] / "results.csv").read_text().splitlines()[1:]]
    assert epochs == ["1", "2", "3", "4"]


def wait_for(
    condition: Callable[[], bool], processes: list[subprocess.Popen[bytes]], printed: Callable[[], str]
) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert all(process.poll() is None for process in processes), printed()
        assert time.monotonic() < deadline, printed()
        time.sleep(0.1)
