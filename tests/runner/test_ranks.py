"""Real processes with gloo between them: faults on one rank, ranks that die, hang or give up."""

from __future__ import annotations

import contextlib
import itertools
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

import oomph

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="gloo and signals as Linux has them")
REPO = Path(__file__).parent.parent.parent


@contextlib.contextmanager
def started(scenario: str, size: int, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = str(Path(oomph.__file__).parent.parent)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.runner.rank", scenario, str(rank), str(size), str(port), str(folder)],
            cwd=REPO,
            env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
            for pipe in (rank.stdout, rank.stderr):
                assert pipe is not None
                pipe.close()


def run(scenario: str, size: int, folder: Path, within: float = 90) -> list[tuple[int, str]]:
    """Exit code and errors of each rank."""
    with started(scenario, size, folder) as ranks:
        return [(rank.wait(within), rank.stderr.read() if rank.stderr else "") for rank in ranks]


@pytest.mark.parametrize("size", [2, 4])
def test_a_fault_on_one_rank_is_recovered_by_all(size: int, tmp_path: Path) -> None:
    ended = run("recover", size, tmp_path)
    assert [code for code, _ in ended] == [0] * size, ended
    found: list[dict[str, Any]] = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(size)]
    for where in ("nowhere", "forward", "backward", "optimizer", "validation"):
        assert all(rank[where]["state"] == found[0][where]["state"] for rank in found), where
        assert all(rank[where]["unused"] for rank in found)
    for where in ("forward", "backward"):
        assert all(rank[where]["retries"] == [0, 1, 0] for rank in found), where
        assert all(rank[where]["pieces"][:2] == [1, 2] for rank in found), where
    assert [rank["optimizer"]["retries"] for rank in found] == [[0, 0, 0]] * (size - 1) + [[0, 1, 0]]
    assert all(rank["validation"]["samples"] == 16 for rank in found)
    for rank, way in itertools.product(found, ("nowhere", "overlap")):
        guarded = [values for values in rank[way]["state"] if len(values) != 1]
        for ours, theirs in zip(_parameters(guarded, rank["plain"]["state"]), rank["plain"]["state"], strict=True):
            assert ours == pytest.approx(theirs, abs=1e-6)


def _parameters(state: list[list[float]], plain: list[list[float]]) -> list[list[float]]:
    """Of a state, what is not BatchNorm's buffers: they come as two lists of 8 after weight and bias."""
    kept = state[:4] + state[6:]
    assert [len(one) for one in kept] == [len(one) for one in plain]
    return kept


def test_a_rank_that_is_killed_ends_the_others_with_the_reason(tmp_path: Path) -> None:
    with started("killed", 3, tmp_path) as ranks:
        ranks[2].wait(90)
        began = time.monotonic()
        codes = [rank.wait(30) for rank in ranks[:2]]
        assert time.monotonic() - began < 30
        said = [rank.stderr.read() for rank in ranks[:2] if rank.stderr is not None]
    assert ranks[2].returncode == -signal.SIGKILL
    assert all(code != 0 for code in codes)
    assert all("RankLost" in text or "this rank" in text for text in said), said
    from oomph.runner._saving import load

    assert load(tmp_path / "last.pt")["guard"]["steps"] == 1


def test_a_rank_that_hangs_ends_the_others_with_the_reason(tmp_path: Path) -> None:
    with started("hung", 2, tmp_path) as ranks:
        assert ranks[1].stdout is not None
        assert ranks[1].stdout.readline() == "stopping\n"
        began = time.monotonic()
        assert ranks[0].wait(30) == 1
        assert time.monotonic() - began < 30
        assert ranks[0].stderr is not None
        assert "rank 1 gave no sign of life for 4 s" in ranks[0].stderr.read()


def test_an_error_on_one_rank_is_the_reason_on_the_others(tmp_path: Path) -> None:
    (first, said), (last, own) = run("gives_up", 2, tmp_path)
    assert first != 0
    assert last != 0
    assert "rank 1: ValueError: the label is 7" in said
    assert "ValueError: the label is 7" in own


def test_fsdp2_with_a_fault_in_backward_ends_every_rank_with_the_reason(tmp_path: Path) -> None:
    with started("sharded", 2, tmp_path) as ranks:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "one step done\n"
        began = time.monotonic()
        codes = [rank.wait(30) for rank in ranks]
        assert time.monotonic() - began < 30
        said = [rank.stderr.read() for rank in ranks if rank.stderr is not None]
    assert all(code != 0 for code in codes)
    assert all("FSDP2" in text for text in said), said


def test_what_would_hang_is_refused_by_name(tmp_path: Path) -> None:
    assert [code for code, _ in run("refused", 2, tmp_path)] == [0, 0]
    said = json.loads((tmp_path / "refused-0.json").read_text())
    assert [words in text for words, text in zip(("SyncBatchNorm", "hook", "wrap it"), said, strict=True)] == [True] * 3
