from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import oomph
from oomph.monitor import Recorder, _run_progress
from oomph.monitor._run_progress import RecordFollower, find_record, read_progress

PID = os.getpid()


@pytest.fixture(autouse=True)
def _only_files_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide files that other tests have left open in this process."""
    open_files = _run_progress._open_files
    monkeypatch.setattr(
        _run_progress, "_open_files", lambda pid: [path for path in open_files(pid) if tmp_path in path.parents]
    )


def test_the_record_of_this_process_is_found_and_read(tmp_path: Path) -> None:
    file = tmp_path / "run"
    with oomph.watch(file, interval=60) as record:
        record.step({"step": 1, "loss": 0.5, "micro_batches": 2, "retries": 1})
        record.step({"step": 2, "seconds": 0.25, "micro_batches": 4})
        assert find_record([PID]) == (PID, file)
        progress = read_progress(PID, file)
    assert progress is not None
    assert (progress.step, progress.loss, progress.step_seconds) == (2, 0.5, 0.25)
    assert (progress.micro_batches, progress.retries, progress.findings) == (4, 1, ())
    assert abs(progress.time - time.time()) < 60


def test_the_record_that_was_written_last_is_taken(tmp_path: Path) -> None:
    with Recorder(tmp_path / "first") as first, Recorder(tmp_path / "second"):
        os.utime(tmp_path / "second", (1, 1))
        first.step({"step": 1})
        assert find_record([PID]) == (PID, tmp_path / "first")


def test_a_closed_record_has_no_progress(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run"):
        pass
    assert find_record([PID]) is None
    assert read_progress(PID, tmp_path / "run") is None


def test_the_diagnosis_is_included(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as record:
        record.step({"step": 1, "loss": float("nan")})
        progress = read_progress(PID, tmp_path / "run")
    assert progress is not None
    assert progress.loss is not None
    assert math.isnan(progress.loss)
    assert len(progress.findings) == 1
    assert "loss" in progress.findings[0].lower()


def test_a_resumed_run_is_not_taken_for_one_that_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "run"
    code = f"import os; from oomph.monitor import Recorder; Recorder({str(file)!r}); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    with Recorder(file) as record:
        # The header of this run is too far back.
        for step in range(2000):
            record.step({"step": step, "padding": "x" * 200})
        progress = read_progress(PID, file)
    assert progress is not None
    assert progress.findings == ()
    assert progress.step is not None
    assert progress.step >= 999  # later ones are written at most 20 times a second


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b"x" * 100_000, b'{"oomph": "record", "version": 99, "start_time": 1}\n']
)
def test_other_files_are_not_records(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_bytes(content)
    with file.open("ab"):
        assert read_progress(PID, file) is None
        if b"record" not in content:
            assert find_record([PID]) is None
    assert read_progress(PID, tmp_path / "missing") is None


def test_values_of_another_type_are_left_out(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run") as record:
        record.step({"step": "7", "loss": "low", "micro_batches": 2.5, "retries": True, "seconds": [1]})
        progress = read_progress(PID, tmp_path / "run")
    assert progress is not None
    assert (progress.step, progress.loss, progress.micro_batches, progress.retries) == (None, None, None, 0)


def test_a_follower_finds_the_record_of_a_child_and_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oomph.monitor._run_progress._MIN_SEARCH_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("oomph.monitor._run_progress._MIN_READ_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("oomph.monitor._run_progress._MAX_SEARCH_FRACTION", 1.0)
    monkeypatch.setattr("oomph.monitor._run_progress._MAX_READ_FRACTION", 1.0)
    follower = RecordFollower(1)
    pids = [1, PID]  # this process as a child
    assert follower.read(pids) is None
    with Recorder(tmp_path / "first") as record:
        record.step({"step": 5})
        progress = follower.read(pids)
        assert progress is not None
        assert (progress.path.name, progress.step) == ("first", 5)
    time.sleep(0.05)
    assert follower.read(pids) is None
    with Recorder(tmp_path / "second"):
        time.sleep(0.05)
        progress = follower.read(pids)
        assert progress is not None
        assert progress.path.name == "second"
