from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from oomph.cli import run
from oomph.report import WatchView
from oomph.units import GIB, MIB

WATCH = [sys.executable, "-m", "oomph", "watch"]
SHOW, HIDE = b"\x1b[?25h", b"\x1b[?25l"


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


# A session leader that opens a terminal makes it its controlling terminal, so that Ctrl-C reaches it.
_CONTROLLING_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
os.execv(sys.executable, [sys.executable, "-m", "oomph", "watch", *sys.argv[1:]])
"""


def on_terminal(arguments: list[str], end: Callable[[int, int], object]) -> tuple[bytes, int]:
    """Run on a pseudo-terminal, call `end` after two updates, and return the output and the exit code."""
    terminal, inside = pty.openpty()
    watching = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLING_TERMINAL, *arguments],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
    )
    os.close(inside)
    output, has_ended, late = b"", False, time.monotonic() + 30
    while time.monotonic() < late:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                output += os.read(terminal, 65536)
            except OSError:
                break  # the other side is closed
        if not has_ended and output.count(b"Press Ctrl-C") >= 2:
            end(watching.pid, terminal)
            has_ended = True
    os.close(terminal)
    return output, watching.wait(timeout=10)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda pid, terminal: os.write(terminal, b"\x03"), 0),
        (lambda pid, terminal: os.kill(pid, signal.SIGINT), 0),
        (lambda pid, terminal: os.kill(pid, signal.SIGTERM), 143),
    ],
    ids=["ctrl-c", "sigint", "sigterm"],
)
def test_terminal_is_always_restored(end: Callable[[int, int], object], code: int) -> None:
    output, status = on_terminal([str(os.getpid()), "--interval", "0.1"], end)
    assert status == code
    assert b"Traceback" not in output
    assert HIDE in output
    assert output.rfind(SHOW) > output.rfind(HIDE)
    assert output.rstrip().endswith(SHOW)


def sample(used: int, **more: object) -> dict[str, object]:
    return {"ram_total": 10 * GIB, "ram_available": 10 * GIB - used, "rss": used, "children": 3, **more}


def test_trend_has_a_forecast() -> None:
    view = WatchView("x")
    for second in range(31):
        view.add(1000.0 + second, sample(2 * GIB + second * 20 * MIB))
    line = view.line()
    assert "RAM 2.59 GiB of 10 GiB (+1.17 GiB/min, full in 6 min)" in line
    assert "process tree 2.59 GiB (+1.17 GiB/min, 3 child processes)" in line


def test_trend_needs_time_and_can_be_steady() -> None:
    view = WatchView("x")
    view.add(1000.0, sample(GIB))
    assert "RAM 1 GiB of 10 GiB  " in view.line() + "  "
    view.add(1010.0, sample(GIB))
    assert "RAM 1 GiB of 10 GiB (steady)" in view.line()


def test_gpu_swap_and_cgroup_have_their_rows() -> None:
    view = WatchView("x", page_file=True)
    gpu = {"index": 1, "name": "T4", "total": 16 * GIB, "free": 4 * GIB, "utilization": 70, "tree_used": 9 * GIB}
    more = {"swap_total": GIB, "swap_used": MIB, "swap_in_rate": 5 * MIB, "swap_out_rate": 0, "cgroup_limit": 4 * GIB}
    view.add(1000.0, sample(GIB, gpus=[{**gpu, "others_used": 2 * GIB, "other_pid": 77}], cgroup_used=GIB, **more))
    line = view.line()
    assert "GPU 1 12 GiB of 16 GiB (T4, 70 % busy, this tree 9 GiB, others 2 GiB, process 77)" in line
    assert "page file 1 MiB of 1 GiB (paging 5 MiB/s)" in line
    assert "cgroup 1 GiB of 4 GiB" in line
