"""Real processes with gloo between them: faults on one rank, ranks that die, hang or give up."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import oomph
from oomph.recovery._ranks import _is_of_ranks
from oomph.recovery._saving import load

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="gloo and signals as Linux has them")
REPO = Path(__file__).parent.parent.parent


class Starter:
    """Starts ranks and tells how they ended."""

    def __init__(self) -> None:
        source = str(Path(oomph.__file__).parent.parent)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.recovery.rank"],
            cwd=REPO,
            env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, scenario: str, size: int, folder: Path) -> list[int]:
        """Their process ids."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([scenario, size, port, str(folder)]) + "\n")
        self.process.stdin.flush()
        return [int(pid) for pid in self._read()]

    def next_end(self) -> tuple[int, int]:
        """Rank and exit code of the next one that ends."""
        rank, code = self._read()
        return rank, code

    def _read(self) -> list[int]:
        assert self.process.stdout is not None
        found: list[int] = json.loads(self.process.stdout.readline())
        return found

    def run(self, scenario: str, size: int, folder: Path) -> list[int]:
        """Their exit codes."""
        self.start(scenario, size, folder)
        return [code for _, code in sorted(self.next_end() for _ in range(size))]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Starter]:
    starter = Starter()
    yield starter
    assert starter.process.stdin is not None
    assert starter.process.stdout is not None
    starter.process.stdin.close()
    starter.process.wait(30)
    starter.process.stdout.close()


def said(folder: Path, rank: int) -> str:
    return (folder / f"{rank}.err").read_text()


def wait_for(path: Path, text: str) -> None:
    until = time.monotonic() + 60
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < until, f"{text!r} is not in {path.name}"
        time.sleep(0.02)


@pytest.mark.parametrize("size", [2, 4])
def test_a_fault_on_one_rank_is_recovered_by_all(size: int, tmp_path: Path, ranks: Starter) -> None:
    assert ranks.run("recover", size, tmp_path) == [0] * size, said(tmp_path, 0)
    found: list[dict[str, Any]] = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(size)]
    for where in ("nowhere", "forward", "backward", "optimizer", "validation"):
        assert all(rank[where]["state"] == found[0][where]["state"] for rank in found), where
        assert all(rank[where]["unused"] for rank in found)
    for where in ("forward", "backward"):
        assert all(rank[where]["retries"] == [0, 1, 0] for rank in found), where
        assert all(rank[where]["pieces"][:2] == [1, 2] for rank in found), where
    assert [rank["optimizer"]["retries"] for rank in found] == [[0, 0, 0]] * (size - 1) + [[0, 1, 0]]
    assert all(rank["validation"]["samples"] == 16 for rank in found)
    for rank in found:
        guarded = [values for values in rank["nowhere"]["state"] if len(values) != 1]
        for ours, theirs in zip(_parameters(guarded, rank["plain"]["state"]), rank["plain"]["state"], strict=True):
            assert ours == pytest.approx(theirs, abs=1e-6)
    _check_overlap(found)


def _check_overlap(found: list[dict[str, Any]]) -> None:
    """Gradients are exchanged during backward from the second step on, until something fails, and then again."""
    for rank in found:
        assert rank["nowhere"]["overlapped"] == [False, True, True]
        assert rank["backward"]["overlapped"] == [False] * 3
        assert rank["after"]["overlapped"] == [False] * 3
        assert rank["calm"]["overlapped"] == [False, False, False, True, True, True]
        assert rank["twice"]["overlapped"] == [False] * 3  # its gradients grow after they have arrived
        assert rank["crowded"]["overlapped"] == [False] * 3  # let go of at the end of the second step
        assert rank["thaw"]["overlapped"] == [False, True, False, False]  # the third has more gradients than buckets
        assert rank["accumulated"]["overlapped"] == [False, False, False, True, False, True]
        pairs = [("backward", "after"), ("crowded", "nowhere")]
        pairs += [(way, f"{way} after") for way in ("twice", "thaw", "pieces", "accumulated")]
        for way, other in pairs:
            assert rank[way]["state"] == found[0][way]["state"]
            for ours, theirs in zip(rank[way]["state"], rank[other]["state"], strict=True):
                assert ours == pytest.approx(theirs, abs=1e-6)


def _parameters(state: list[list[float]], plain: list[list[float]]) -> list[list[float]]:
    """Of a state, what is not BatchNorm's buffers: they come as two lists of 8 after weight and bias."""
    kept = state[:3] + state[5:]
    assert [len(one) for one in kept] == [len(one) for one in plain]
    return kept


def test_a_rank_that_is_killed_ends_the_others_with_the_reason(tmp_path: Path, ranks: Starter) -> None:
    ranks.start("killed", 3, tmp_path)
    assert ranks.next_end() == (2, -signal.SIGKILL)
    began = time.monotonic()
    assert sorted(rank for rank, code in (ranks.next_end(), ranks.next_end()) if code) == [0, 1]
    assert time.monotonic() - began < 30
    for rank in range(2):
        assert "RankLost" in said(tmp_path, rank) or "this rank" in said(tmp_path, rank), said(tmp_path, rank)
    assert load(tmp_path / "last.pt")["guard"]["steps"] == 1


def test_a_rank_that_hangs_ends_the_others_with_the_reason(tmp_path: Path, ranks: Starter) -> None:
    pids = ranks.start("hung", 2, tmp_path)
    wait_for(tmp_path / "1.out", "stopping")
    began = time.monotonic()
    assert ranks.next_end() == (0, 1)
    assert time.monotonic() - began < 30
    os.kill(pids[1], signal.SIGKILL)
    assert ranks.next_end() == (1, -signal.SIGKILL)
    assert "rank 1 gave no sign of life for 3 s" in said(tmp_path, 0)


def test_an_error_on_one_rank_is_the_reason_on_the_others(tmp_path: Path, ranks: Starter) -> None:
    assert 0 not in ranks.run("gives_up", 2, tmp_path)
    assert "rank 1: ValueError: the label is 7" in said(tmp_path, 0)
    assert "ValueError: the label is 7" in said(tmp_path, 1)


def test_fsdp2_with_a_fault_in_backward_ends_every_rank_with_the_reason(tmp_path: Path, ranks: Starter) -> None:
    ranks.start("sharded", 2, tmp_path)
    for rank in range(2):
        wait_for(tmp_path / f"{rank}.out", "one step done")
    began = time.monotonic()
    assert 0 not in [code for _, code in (ranks.next_end(), ranks.next_end())]
    assert time.monotonic() - began < 30
    for rank in range(2):
        assert "FSDP2" in said(tmp_path, rank), said(tmp_path, rank)


def test_what_would_hang_is_refused_by_name(tmp_path: Path, ranks: Starter) -> None:
    assert ranks.run("refused", 2, tmp_path) == [0, 0], said(tmp_path, 0)
    found = json.loads((tmp_path / "refused-0.json").read_text())
    assert [word in text for word, text in zip(("SyncBatchNorm", "hook", "sparse", "wrap it"), found, strict=True)] == [
        True
    ] * 4


def test_gradients_that_turn_out_to_be_sparse_are_refused_by_name(tmp_path: Path, ranks: Starter) -> None:
    assert ranks.run("sparse", 2, tmp_path) == [1, 1]
    assert any("UsageError: some gradients are sparse" in said(tmp_path, rank) for rank in range(2)), said(tmp_path, 0)
    assert not any("is gone" in said(tmp_path, rank) for rank in range(2))


def test_a_layer_that_only_one_rank_uses_is_updated_on_all(tmp_path: Path, ranks: Starter) -> None:
    assert ranks.run("sided", 2, tmp_path) == [0, 0], said(tmp_path, 0)
    found: list[dict[str, Any]] = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for way in ("overlap", "after"):
        assert found[0][way] == found[1][way]
        for ours, theirs in zip(found[0][way], found[0]["plain"], strict=True):
            assert ours == pytest.approx(theirs, abs=1e-6), way


def test_a_static_graph_is_honoured(tmp_path: Path, ranks: Starter) -> None:
    assert ranks.run("static", 2, tmp_path) == [0, 0], said(tmp_path, 0)
    found: list[dict[str, Any]] = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert found[0]["guarded"] == found[1]["guarded"]
    for ours, theirs in zip(found[0]["guarded"], found[0]["plain"], strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)


def test_a_signal_after_the_last_update_ends_all_ranks_with_the_run_saved(tmp_path: Path, ranks: Starter) -> None:
    assert ranks.run("asked", 2, tmp_path) == [1, 1]
    for rank in range(2):
        assert "SystemExit: 143" in said(tmp_path, rank)
        assert "went on" not in (tmp_path / f"{rank}.out").read_text()
    assert load(tmp_path / "last.pt")["guard"]["steps"] == 2


def test_a_run_that_ends_between_updates_is_saved_without_the_gradients_of_one_rank(
    tmp_path: Path, ranks: Starter
) -> None:
    assert ranks.run("accumulating", 2, tmp_path) == [1, 1]
    assert "RetriesExhausted" in said(tmp_path, 0)
    assert "Batches since the last update are not in the checkpoint" in said(tmp_path, 0)
    state = load(tmp_path / "last.pt")
    assert state["guard"]["steps"] == 2
    assert state["gradients"] == {}
    assert state["pending"] is None


def test_only_what_is_about_ranks_is_another_ranks_end() -> None:
    assert _is_of_ranks(RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3234"))
    assert _is_of_ranks(dist.DistBackendError("NCCL communicator is gone"))
    for text in ("copy_() between dense and sparse", "DefaultCPUAllocator: can't allocate memory: 8", "label is 7"):
        assert not _is_of_ranks(RuntimeError(text))
    assert not _is_of_ranks(dist.DistBackendError("Cuda failure 2 'out of memory'"))
