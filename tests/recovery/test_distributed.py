"""Several ranks in processes with gloo: errors on one of them, and ranks that die, hang or give up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oomph
from oomph.recovery._checkpoint import load

from ..ports import free_port

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(sys.platform != "linux", reason="needs the signals of Linux"),
]
REPO = Path(__file__).parent.parent.parent


class Launcher:
    """Starts the ranks of scenarios, and returns how they end."""

    def __init__(self) -> None:
        self.number = 0  # of the run
        source = str(Path(oomph.__file__).parent.parent)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.recovery.rank_process"],
            cwd=REPO,
            env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, scenario: str, size: int, folder: Path) -> list[int]:
        """Start the ranks and return their process ids."""
        port = free_port()
        assert self.process.stdin is not None
        self.number += 1
        self.process.stdin.write(json.dumps([self.number, scenario, size, port, str(folder)]) + "\n")
        self.process.stdin.flush()
        return self._read()

    def wait_for_next(self) -> tuple[int, int]:
        """Wait for the next rank that ends, and return it with its exit code."""
        rank, code = self._read()
        return rank, code

    def _read(self) -> list[int]:
        assert self.process.stdout is not None
        run, numbers = 0, []
        while run != self.number:  # skips the rest of a test that failed
            run, numbers = json.loads(self.process.stdout.readline())
        return numbers

    def run(self, scenario: str, size: int, folder: Path) -> list[int]:
        """Run the ranks to their end and return their exit codes."""
        self.start(scenario, size, folder)
        return [code for _, code in sorted(self.wait_for_next() for _ in range(size))]

    def results(self, scenario: str, size: int, folder: Path) -> list[dict[str, Any]]:
        """Run ranks that all succeed, and return the result of each."""
        assert self.run(scenario, size, folder) == [0] * size, errors(folder, 0)
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


def errors(folder: Path, rank: int) -> str:
    return (folder / f"{rank}.err").read_text()


def wait_for_text(path: Path, text: str) -> None:
    until = time.monotonic() + 60
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < until, f"{text!r} is not in {path.name}"
        time.sleep(0.02)


def assert_close(parameters: list[list[float]], expected: list[list[float]]) -> None:
    for numbers, expected_numbers in zip(parameters, expected, strict=True):
        assert numbers == pytest.approx(expected_numbers, abs=1e-6)


@pytest.mark.parametrize("size", [2, 4])
def test_all_ranks_recover_from_an_error_on_one_of_them(size: int, tmp_path: Path, launcher: Launcher) -> None:
    results = launcher.results("recover", size, tmp_path)
    for rank, result in enumerate(results):
        for case in ("undisturbed", "forward", "backward", "optimizer", "validation", "growing back"):
            assert result[case]["state"] == results[0][case]["state"], case
            assert result[case]["unused_has_no_grad"]
        assert_close(result["undisturbed"]["parameters"], result["ddp"])
        for case in ("forward", "backward"):
            assert result[case]["retries"] == [0, 1, 0], case
            assert result[case]["micro_batches"] == [1, 2, 2], case
            assert_close(result[case]["parameters"], result["split from the second step"])
        assert result["optimizer"]["retries"] == [0, int(rank == size - 1), 0]
        assert result["optimizer"]["state"] == result["undisturbed"]["state"]
        assert result["validation"]["validated"] == 16
        assert result["growing back"]["micro_batches"] == [1, 2, 2, 1, 1, 1]
        assert result["uneven"] == ["2 micro-batches of up to 4 samples"], "ranks choose by the largest batch"


def test_steps_of_several_ranks_are_exact(tmp_path: Path, launcher: Launcher) -> None:
    results = launcher.results("exact", 2, tmp_path)
    for result in results:
        for case, (guarded, expected) in result["exact"].items():
            assert guarded["state"] == results[0]["exact"][case][0]["state"], case
            assert_close(guarded["parameters"], expected)
        assert result["resumed"]["random numbers"] == result["resumed"]["expected"], "each rank has its own"
        assert result["resumed"]["steps"] == 1


def test_a_rank_that_is_killed_ends_the_others_with_the_reason(tmp_path: Path, launcher: Launcher) -> None:
    launcher.start("killed", 3, tmp_path)
    assert launcher.wait_for_next() == (2, -signal.SIGKILL)
    started_at = time.monotonic()
    assert sorted(rank for rank, code in (launcher.wait_for_next(), launcher.wait_for_next()) if code) == [0, 1]
    assert time.monotonic() - started_at < 30
    for rank in range(2):
        output = errors(tmp_path, rank)
        assert "RankLost" in output or f"oomph: rank {rank} stops" in output, output
    assert load(tmp_path / "last.pt")["guard"]["steps"] == 1


@pytest.mark.large  # test_watchdog.py has a silent rank without a guard
def test_a_rank_that_hangs_ends_the_others_with_the_reason(tmp_path: Path, launcher: Launcher) -> None:
    pids = launcher.start("hung", 2, tmp_path)
    wait_for_text(tmp_path / "1.out", "stopping")
    started_at = time.monotonic()
    assert launcher.wait_for_next() == (0, 1)
    assert time.monotonic() - started_at < 30
    os.kill(pids[1], signal.SIGKILL)
    assert launcher.wait_for_next() == (1, -signal.SIGKILL)
    assert "rank 1 sent no heartbeat for 3 s" in errors(tmp_path, 0)


def test_an_error_on_one_rank_is_the_reason_on_the_others(tmp_path: Path, launcher: Launcher) -> None:
    assert 0 not in launcher.run("user_error", 2, tmp_path)
    assert "rank 1: ValueError: the label is 7" in errors(tmp_path, 0)
    assert "ValueError: the label is 7" in errors(tmp_path, 1)


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [("predict_error", "ValueError: the predictor failed"), ("empty_batch", "UsageError: the batch has no samples")],
)
def test_an_error_before_or_after_the_work_of_a_step_ends_the_other_ranks_too(
    scenario: str, reason: str, tmp_path: Path, launcher: Launcher
) -> None:
    assert 0 not in launcher.run(scenario, 2, tmp_path)
    assert f"rank 1: {reason}" in errors(tmp_path, 0)
    assert reason in errors(tmp_path, 1)


def test_all_ranks_give_up_together_and_the_first_one_saves(tmp_path: Path, launcher: Launcher) -> None:
    assert launcher.run("exhausted", 2, tmp_path) == [1, 1]
    assert "RetriesExhausted" in errors(tmp_path, 0)
    assert "out of memory on another rank" in errors(tmp_path, 0)
    assert "CUDA out of memory" in errors(tmp_path, 1)
    assert "the run was saved to the first rank's checkpoint" in errors(tmp_path, 1), "it waits for the first rank"
    assert load(tmp_path / "last.pt")["guard"]["steps"] == 1


def test_the_first_rank_saves_to_the_end_after_another_one_gave_up(tmp_path: Path, launcher: Launcher) -> None:
    assert launcher.run("update_exhausted", 2, tmp_path) == [1, 1]
    assert "the run was saved to the place that checkpoint= chose" in errors(tmp_path, 0)
    assert "this process did not save the run" in errors(tmp_path, 1)
    assert load(tmp_path / "last.pt")["guard"]["steps"] == 1


def test_a_run_is_saved_between_updates_without_the_gradients_of_one_rank(tmp_path: Path, launcher: Launcher) -> None:
    assert launcher.run("accumulating", 2, tmp_path) == [1, 1]
    assert "RetriesExhausted" in errors(tmp_path, 0)
    assert "The checkpoint lacks the batches since the last update" in errors(tmp_path, 0)
    for name in ("last.pt", "between.pt"):
        state = load(tmp_path / name)
        assert state["guard"]["steps"] == 2
        assert state["grads"] == {}
        assert state["pending"] is None


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.large)])
def test_all_ranks_of_fsdp2_retry_what_failed_on_one_of_them(size: int, tmp_path: Path, launcher: Launcher) -> None:
    for result in launcher.results("sharded", size, tmp_path):
        for case in ("first forward", "last forward", "last backward", "reduction", "all backward"):
            assert result[case]["retries"] == [0, 1, 0], case
            assert result[case]["micro_batches"] == [1, 2, 2], case
            assert_close(result[case]["parameters"], result["undisturbed"]["parameters"])


@pytest.mark.large
def test_a_real_limit_on_one_rank_of_fsdp2_splits_the_batch_on_all(tmp_path: Path, launcher: Launcher) -> None:
    first, last = launcher.results("sharded_limit", 2, tmp_path)
    assert first["micro_batches"] == last["micro_batches"]
    assert first["micro_batches"][0] > 1
    assert first["retries"][0] == last["retries"][0] >= 1
    assert first["retries"][1] == 0


def test_ranks_of_fsdp2_give_up_together_and_each_saves_its_shard(tmp_path: Path, launcher: Launcher) -> None:
    assert launcher.run("sharded_exhausted", 2, tmp_path) == [1, 1]
    for rank in range(2):
        assert "RetriesExhausted" in errors(tmp_path, rank)
        assert "the run was saved to" in errors(tmp_path, rank)
    assert "out of memory on another rank" in errors(tmp_path, 0)
    assert "CUDA out of memory" in errors(tmp_path, 1)
    assert load(tmp_path / "last" / "guard.pt")["guard"]["steps"] == 1
    assert len(list((tmp_path / "last").glob("*.distcp"))) == 2


def test_an_error_of_the_user_under_fsdp2_is_the_reason_on_all_ranks(tmp_path: Path, launcher: Launcher) -> None:
    assert 0 not in launcher.run("sharded_error", 2, tmp_path)
    assert "rank 1: ValueError: the label is 7" in errors(tmp_path, 0)


def test_a_run_of_fsdp2_continues_with_another_number_of_ranks(tmp_path: Path, launcher: Launcher) -> None:
    expected = launcher.results("sharded_resumed", 2, tmp_path)[0]
    for size in (2, 3):
        for result in launcher.results("sharded_resumed", size, tmp_path):
            assert result["steps"] == 2
            assert_close(result["parameters"], expected["parameters"])


def test_models_that_would_hang_are_rejected_by_name(tmp_path: Path, launcher: Launcher) -> None:
    messages = launcher.results("rejected", 2, tmp_path)[0]
    assert "SyncBatchNorm exchanges statistics inside the forward" in messages["sync_batch_norm"]
    assert "a communication hook is registered" in messages["comm_hook"]
    assert "an embedding has sparse gradients" in messages["sparse"]
    assert "wrap it before you guard it" in messages["not_wrapped"]


def test_gradients_that_turn_out_to_be_sparse_are_rejected(tmp_path: Path, launcher: Launcher) -> None:
    assert launcher.run("sparse_gradients", 2, tmp_path) == [1, 1]
    outputs = [errors(tmp_path, rank) for rank in range(2)]
    assert any("UsageError: some gradients are sparse" in output for output in outputs), outputs[0]
    assert not any("is gone" in output for output in outputs)


@pytest.mark.parametrize("scenario", ["one_sided_layer", "static_graph"])
def test_models_are_trained_as_by_ddp(scenario: str, tmp_path: Path, launcher: Launcher) -> None:
    """A layer that only one rank uses is updated on all of them; a static graph survives a retry."""
    results = launcher.results(scenario, 2, tmp_path)
    assert results[0]["guarded"] == results[1]["guarded"]
    assert_close(results[0]["guarded"], results[0]["plain"])


def test_a_signal_on_one_rank_stops_all_of_them_with_the_run_saved(tmp_path: Path, launcher: Launcher) -> None:
    assert launcher.run("signaled", 2, tmp_path) == [1, 1]
    for rank in range(2):
        assert "SystemExit: 143" in errors(tmp_path, rank)
        assert "not stopped" not in (tmp_path / f"{rank}.out").read_text()
    assert load(tmp_path / "last.pt")["guard"]["steps"] == 2
