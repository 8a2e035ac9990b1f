from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import oomph
from oomph.cli import run
from oomph.errors import CannotFit, OomphError

MODULE = [sys.executable, "-m", "oomph"]


def run_module(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environ}
    )


@pytest.mark.medium
@pytest.mark.parametrize(
    "arguments",
    [
        ["gpus", "GTX 9999 Ti Super"],
        ["gpus", "AWS P8"],
        ["gpus", "A100"],
        ["gpus", "--min", "12 bananas"],
        ["gpus", "--min", "80%"],
        ["gpus", "--cloud", "ibm"],
        ["doctor", "--batch", "12 bananas"],
        ["doctor", "--machine", "no/such/file.json"],
        ["doctor", "--checkpoints", "no/such/folder"],
        ["doctor", "--workers", "many"],
        ["doctor", "--workers", "-1"],
        ["doctor", "--workers", "1e3"],
        ["doctor", "--workers", "9" * 400],
        ["doctor", "--batch", "9" * 400],
        ["doctor", "--machine", "x.json", "--checkpoints", "."],
        ["doctor", "--machine", "x.json", "--torch"],
        ["gpus", "h200", "--min", "8GiB"],
        ["gpus", "h200", "--cloud", "aws"],
        ["gpus", "--min", "9999TB"],
        ["gpus", "--cloud", "aws", "--min", "9999TB"],
        ["doctor", "--nonsense"],
        ["doctor", "extra"],
        ["nonsense"],
        ["--nonsense"],
        ["x" * 5000],
        ["doctor", "x" * 5000],
        ["doctor", f"--{'x' * 5000}"],
        ["doctor", "--workers", "x" * 5000],
        ["gpus", "x" * 5000],
        ["gpus", "--cloud", "x" * 5000],
        ["watch", "x" * 5000],
        ["watch", "--interval", "x" * 5000],
    ],
    ids=lambda arguments: " ".join(arguments)[:60],
)
def test_usage_error_is_one_short_sentence_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("oomph: ")
    assert captured.err.count("\n") == 1
    assert captured.err.endswith(".\n")
    assert "Traceback" not in captured.err
    assert len(captured.err) < 500


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["doctor", "--workers", "many"], "'many' is not a number of workers; use a whole number"),
        (["gpus", "--cloud", "ibm"], "'ibm' is not a cloud that oomph knows; use aws, gcp, azure"),
        (["gpus", "--min", "9999TB"], "the memory of M3 Ultra 512GB"),
        (["gpus", "--cloud", "aws", "--min", "9999TB"], "the memory of p6-b300"),
        (["doctor", "--machine", "x", "--torch"], "--machine can't be combined with --torch"),
        (["gpus", "h200", "--min", "1", "--cloud", "aws"], "NAME can't be combined with --min and --cloud"),
    ],
)
def test_message_names_the_problem_and_the_fix(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    message = capsys.readouterr().err
    assert text in message
    assert "Input should" not in message


@pytest.mark.medium
@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_help_shows_defaults_and_no_none(term: str, tmp_path: Path) -> None:
    typescript = tmp_path / "out"
    for command, default in (("doctor", "8, or one per core"), ("gpus", "")):
        subprocess.run(
            ["script", "-qec", f"{sys.executable} -m oomph {command} --help", str(typescript)],
            check=True,
            capture_output=True,
            env={**os.environ, "TERM": term, "COLUMNS": "160"},
        )
        output = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", typescript.read_text()).split())
        assert default in output
        assert "None" not in output
        assert default in " ".join(run_module(command, "--help").stdout.split())


@pytest.mark.medium
def test_usage_error_in_a_new_process() -> None:
    process = run_module("gpus", "--min", "12 bananas")
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr.count("\n") == 1


def test_json_errors_are_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "AWS P8", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["oomph"], document["kind"]) == ("error", "UnknownName")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("error", "code"), [(CannotFit("too large", "shrink it"), 3), (OomphError("it broke", "fix it"), 1)]
)
def test_errors_have_exit_codes(
    error: OomphError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("oomph.machine.diagnose_machine", broken)
    assert run(["doctor"]) == code
    assert capsys.readouterr().err == f"oomph: {error}\n"


def test_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("oomph.machine.diagnose_machine", buggy)
    with pytest.raises(ZeroDivisionError):
        run(["doctor"])


def test_ctrl_c_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oomph.machine.diagnose_machine", interrupted)
    assert run(["doctor"]) == 130


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"oomph {oomph.__version__}\n"
    assert run(["--help"]) == 0
    output = capsys.readouterr().out
    assert run([]) == 0
    assert capsys.readouterr().out == output
    assert "doctor" in output


@pytest.mark.medium
def test_closed_pipe_is_not_an_error() -> None:
    process = subprocess.run(  # noqa: S602  the pipe is what is tested
        f"{sys.executable} -m oomph gpus | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.medium
def test_pipe_gets_no_escape_codes() -> None:
    assert "\x1b" not in run_module("doctor").stdout
    assert "\x1b[3" not in run_module("doctor", NO_COLOR="1", FORCE_COLOR="1", COLUMNS="100").stdout


@pytest.mark.medium
def test_terminal_gets_a_table(tmp_path: Path) -> None:
    typescript = tmp_path / "out"
    command = f"{sys.executable} -m oomph doctor"
    subprocess.run(
        ["script", "-qec", command, str(typescript)],
        check=True,
        capture_output=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
    )
    assert "\x1b[1m" in typescript.read_text()


def in_shell(command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command in which `oomph` is this module."""
    return subprocess.run(
        ["bash", "-c", command.replace("oomph", f"{sys.executable} -m oomph", 1)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


@pytest.mark.medium
@pytest.mark.parametrize("arguments", ["gpus", "doctor --json", "--version", "gpus --help"])
def test_unwritable_output_is_one_sentence_and_exit_code_1(arguments: str) -> None:
    process = in_shell(f"oomph {arguments} > /dev/full")
    assert process.returncode == 1
    assert process.stderr == "oomph: the output can't be written (No space left on device); redirect it elsewhere.\n"


@pytest.mark.medium
def test_closed_output_is_one_sentence() -> None:
    process = in_shell("oomph gpus >&-")
    assert (process.returncode, process.stderr.count("\n")) == (1, 1)
    assert "standard output is closed" in process.stderr
    assert in_shell("oomph gpus >&- 2>&-").returncode == 1


@pytest.mark.medium
def test_ascii_output_gets_question_marks() -> None:
    process = run_module("gpus", "a100-40", PYTHONIOENCODING="ascii")
    assert (process.returncode, process.stderr) == (0, "")
    assert "8 ? A100 SXM4 40GB" in process.stdout


def test_escape_codes_of_an_error_are_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OomphError("\x1b[31mred", "fix it")

    monkeypatch.setattr("oomph.machine.diagnose_machine", broken)
    assert run(["doctor"]) == 1
    assert capsys.readouterr().err == "oomph: ?[31mred; fix it.\n"
