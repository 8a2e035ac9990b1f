from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from oomph.cli import run

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity)"


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["explain", *arguments]) == 0
    return capsys.readouterr().out


def test_a_log_of_two_ranks_is_explained_by_the_one_that_failed_first(capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, str(EXAMPLES / "logs" / "two_ranks.log"))
    assert shown.startswith("The GPU ran out of memory.\n")
    assert "It happened on rank 1." in shown
    assert shown.index("held by process 2797307") < shown.index("Also found") < shown.index("rank-timeout")


def test_what_is_not_memory_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, str(EXAMPLES / "logs" / "labels.log"))
    assert shown.startswith("Not a memory problem: A check inside a GPU kernel failed.\n")


def test_a_record_is_explained_by_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, str(EXAMPLES / "records" / "killed.jsonl"))
    assert shown.startswith("The kernel killed the process for using too much RAM.\n")
    assert "31.8 GiB of 32 GiB of the control group's memory in use" in shown
    assert "Host memory leaks" in shown
    assert "120 steps and 120 samples" in shown


def test_nothing_recognised_is_said_honestly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("RuntimeError: the frobnicator is open\n")
    shown = told(capsys, str(file))
    assert shown.startswith("Nothing recognised")
    assert "the frobnicator is open" in shown


def test_a_healthy_record_is_called_healthy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from oomph.monitor import Recorder

    with Recorder(tmp_path / "run.jsonl") as recorder:
        recorder.step({"step": 1, "loss": 0.5})
    assert told(capsys, str(tmp_path / "run.jsonl")).startswith("Nothing is wrong with this run")


def test_standard_input_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert told(capsys, "-").startswith("The GPU ran out of memory.")


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, str(EXAMPLES / "logs" / "two_ranks.log"), "--json"))
    assert (found["oomph"], found["verdict"], found["source"]) == ("explanation", "memory", "log")
    first = found["findings"][0]
    assert (first["kind"], first["figures"]["rank"], first["retryable"]) == ("cuda-out-of-memory", 1, True)
    assert first["why"]
    assert first["fix"]


def test_a_log_obeys_no_escape_codes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text(f"\x1b]0;gotcha\x07{TEXT}\x1b[2J\x9b31m \u202e\x08")
    shown = told(capsys, str(file))
    assert shown.replace("\n", "").isprintable()
    assert "gotcha" not in shown


def test_any_bytes_are_read() -> None:
    noise = bytes(range(256)) * 2000
    done = subprocess.run(
        [sys.executable, "-m", "oomph", "explain", "-"], input=noise, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Nothing recognised")


def test_explaining_imports_no_torch() -> None:
    code = (
        "import sys; from oomph.cli import run; "
        f"run(['explain', {str(EXAMPLES / 'logs' / 'labels.log')!r}]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
