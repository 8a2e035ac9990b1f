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


def shell(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MODULE, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environ}
    )


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
    ],
    ids=" ".join,
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("oomph: ")
    assert captured.err.count("\n") == 1
    assert captured.err.endswith(".\n")
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["doctor", "--workers", "many"], "'many' is not a number of workers; write a whole number"),
        (["gpus", "--cloud", "ibm"], "'ibm' is no cloud that oomph knows; write one of aws, gcp, azure"),
        (["gpus", "--min", "9999TB"], "the largest, M3 Ultra 512GB, has"),
        (["gpus", "--cloud", "aws", "--min", "9999TB"], "the largest, p6-b300"),
        (["doctor", "--machine", "x", "--torch"], "--torch looks at this one"),
        (["gpus", "h200", "--min", "1", "--cloud", "aws"], "--min and --cloud narrows a list"),
    ],
)
def test_a_refusal_is_in_plain_words(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "Input should" not in told


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_help_tells_defaults_and_no_none(term: str, tmp_path: Path) -> None:
    typescript = tmp_path / "out"
    for command, default in (("doctor", "8, or one a core"), ("gpus", "")):
        subprocess.run(
            ["script", "-qec", f"{sys.executable} -m oomph {command} --help", str(typescript)],
            check=True,
            capture_output=True,
            env={**os.environ, "TERM": term, "COLUMNS": "160"},
        )
        shown = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", typescript.read_text()).split())
        assert default in shown
        assert "None" not in shown
        assert default in " ".join(shell(command, "--help").stdout.split())


def test_a_wrong_call_from_a_real_shell() -> None:
    done = shell("gpus", "--min", "12 bananas")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_an_error_is_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gpus", "AWS P8", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["oomph"], document["kind"]) == ("error", "UnknownName")


@pytest.mark.parametrize(
    ("error", "code"), [(CannotFit("too large", "shrink it"), 3), (OomphError("broke", "mend"), 1)]
)
def test_typed_errors_become_exit_codes_in_one_place(
    error: OomphError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("oomph.machine.judge", broken)
    assert run(["doctor"]) == code
    assert capsys.readouterr().err == f"oomph: {error}\n"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("oomph.machine.judge", buggy)
    with pytest.raises(ZeroDivisionError):
        run(["doctor"])


def test_ctrl_c_leaves_as_shells_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oomph.machine.judge", interrupted)
    assert run(["doctor"]) == 130


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"oomph {oomph.__version__}\n"
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert run([]) == 0
    assert capsys.readouterr().out == shown
    assert "doctor" in shown


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = subprocess.run(  # noqa: S602  the pipe is what is tested
        f"{sys.executable} -m oomph gpus | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_gets_no_escape_codes_and_no_color_is_honoured() -> None:
    assert "\x1b" not in shell("doctor").stdout
    assert "\x1b[3" not in shell("doctor", NO_COLOR="1", FORCE_COLOR="1", COLUMNS="100").stdout


def test_a_terminal_gets_a_table(tmp_path: Path) -> None:
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
    """Run a line of shell in which `oomph` is this one."""
    return subprocess.run(
        ["bash", "-c", command.replace("oomph", f"{sys.executable} -m oomph", 1)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


@pytest.mark.parametrize("arguments", ["gpus", "doctor --json", "--version", "gpus --help"])
def test_output_that_cannot_be_written_is_one_sentence_and_exit_code_1(arguments: str) -> None:
    done = in_shell(f"oomph {arguments} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "oomph: the output can't be written (No space left on device); send it elsewhere.\n"


def test_a_closed_output_is_one_sentence() -> None:
    done = in_shell("oomph gpus >&-")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "standard output is closed" in done.stderr
    assert in_shell("oomph gpus >&- 2>&-").returncode == 1


def test_an_output_that_knows_only_ascii_gets_question_marks() -> None:
    done = shell("gpus", "a100-40", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "8 ? A100 SXM4 40GB" in done.stdout


def test_an_error_obeys_no_escape_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OomphError("\x1b[31mred", "mend it")

    monkeypatch.setattr("oomph.machine.judge", broken)
    assert run(["doctor"]) == 1
    assert capsys.readouterr().err == "oomph: ?[31mred; mend it.\n"
