from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from oomph.cli import run

WATCH = [sys.executable, "-m", "oomph", "watch"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.medium
def test_pipe_gets_one_line_per_sample(sleeper: subprocess.Popen[bytes]) -> None:
    command = [*WATCH, str(sleeper.pid), "--count", "3", "--interval", "0.05"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = process.stdout.splitlines()
    assert len(lines) == 3
    assert all(re.match(r"\d\d:\d\d:\d\d  process tree [\d.]+ MiB  .*RAM [\d.]+ \wiB of", line) for line in lines)
    assert "\x1b" not in process.stdout
    assert process.stderr == ""


@pytest.mark.medium
def test_json_is_one_document_per_line(sleeper: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", str(sleeper.pid), "--count", "2", "--interval", "0.05", "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["oomph"], first["version"], first["children"]) == ("sample", 1, 0)
    assert 0.04 < second["t"] - first["t"] < 5
    assert second["swap_in_rate"] >= 0


def test_machine_is_shown_without_a_pid(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", "--count", "1", "--json"]) == 0
    sample = json.loads(capsys.readouterr().out)
    assert "rss" not in sample
    assert sample["ram_total"] > 0
    assert isinstance(sample["processes"], list)


@pytest.mark.medium
def test_watch_ends_with_the_process(sleeper: subprocess.Popen[bytes]) -> None:
    watching = subprocess.Popen([*WATCH, str(sleeper.pid), "--interval", "0.05"], stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None
    assert watching.stdout.readline()
    sleeper.kill()
    output = watching.stdout.read()
    watching.stdout.close()
    assert watching.wait() == 0
    assert output.endswith(f"Process {sleeper.pid} has ended.\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["999999999"], "there is no process 999999999"),
        (["abc"], "'abc' is not a process id"),
        (["0"], "'0' is not a process id"),
        (["--interval", "0"], "'0' is not a valid interval"),
        (["--interval", "nan"], "'nan' is not a valid interval"),
        (["--interval", "soon"], "'soon' is not a valid interval"),
        (["--count", "-1"], "'-1' is not a number of samples"),
    ],
)
def test_usage_error_is_one_sentence(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert captured.err.count("\n") == 1
