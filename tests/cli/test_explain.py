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


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["explain", *arguments]) == 0
    return capsys.readouterr().out


def test_log_of_two_ranks_is_explained_by_the_failed_rank(capsys: pytest.CaptureFixture[str]) -> None:
    output = explained(capsys, str(EXAMPLES / "logs" / "two_ranks.log"))
    assert output.startswith("The GPU ran out of memory.\n")
    assert "It happened on rank 1." in output
    assert output.index("used by process 2797307") < output.index("Also found") < output.index("rank-timeout")


def test_other_failures_are_called_not_memory(capsys: pytest.CaptureFixture[str]) -> None:
    output = explained(capsys, str(EXAMPLES / "logs" / "labels.log"))
    assert output.startswith("Not a memory problem: An assertion in a GPU kernel failed.\n")


def test_record_is_explained_by_its_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    output = explained(capsys, str(EXAMPLES / "records" / "killed.jsonl"))
    assert output.startswith("The kernel killed the process because RAM ran out.\n")
    assert "31.8 GiB of 32 GiB in use (cgroup limit)" in output
    assert "Host memory leaks" in output
    assert "120 steps and 120 samples" in output


def test_unrecognized_log_shows_its_last_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text("RuntimeError: the frobnicator is open\n")
    output = explained(capsys, str(file))
    assert output.startswith("oomph recognizes no failure")
    assert "the frobnicator is open" in output


def test_healthy_record_has_no_problem(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from oomph.monitor import Recorder

    with Recorder(tmp_path / "run.jsonl") as recorder:
        recorder.step({"step": 1, "loss": 0.5})
    assert explained(capsys, str(tmp_path / "run.jsonl")).startswith("The Record shows no problem with this run.")


def test_standard_input_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert explained(capsys, "-").startswith("The GPU ran out of memory.")


def test_json_contains_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    explanation = json.loads(explained(capsys, str(EXAMPLES / "logs" / "two_ranks.log"), "--json"))
    assert (explanation["oomph"], explanation["verdict"], explanation["source"]) == ("explanation", "memory", "log")
    first = explanation["findings"][0]
    assert (first["kind"], first["numbers"]["rank"], first["retryable"]) == ("cuda-out-of-memory", 1, True)
    assert first["why"]
    assert first["fix"]


def test_escape_codes_of_a_log_are_not_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "x.log"
    file.write_text(f"\x1b]0;gotcha\x07{TEXT}\x1b[2J\x9b31m \u202e\x08")
    output = explained(capsys, str(file))
    assert output.replace("\n", "").isprintable()
    assert "gotcha" not in output


@pytest.mark.medium
def test_any_bytes_are_read() -> None:
    noise = bytes(range(256)) * 2000
    command = [sys.executable, "-m", "oomph", "explain", "-"]
    process = subprocess.run(command, input=noise, capture_output=True, check=False)
    assert (process.returncode, process.stderr) == (0, b"")
    assert process.stdout.startswith(b"oomph recognizes no failure")


@pytest.mark.medium
def test_explain_imports_no_torch() -> None:
    code = (
        "import sys; from oomph.cli import run; "
        f"run(['explain', {str(EXAMPLES / 'logs' / 'labels.log')!r}]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_long_path_is_cut_in_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "x" * 3000]) == 2
    assert len(capsys.readouterr().err) < 200
