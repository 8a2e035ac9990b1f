"""Commands on a real terminal: size, keys, job control, hang-up."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from oomph.monitor import load_record

from .runs import OOMPH, Terminal, is_alive, on_terminal, python, wait_for

pytestmark = pytest.mark.medium

SHOW_SIZE = """
import os, signal, sys, time
def show(*_):
    size = os.get_terminal_size()
    print("size", size.lines, size.columns, [os.isatty(n) for n in range(3)], flush=True)
signal.signal(signal.SIGWINCH, show)
show()
while True:
    time.sleep(0.1)
"""
COUNT = """
import time
for number in range(10_000):
    print("count", number, flush=True)
    time.sleep(0.05)
"""


def test_a_terminal_stays_a_terminal_of_the_same_size(tmp_path: Path) -> None:
    with on_terminal([*OOMPH, "--", *python(SHOW_SIZE)], tmp_path, (33, 77)) as terminal:
        terminal.wait_for(rb"size 33 77 \[True, True, True\]")
        terminal.resize(21, 99)
        terminal.wait_for(rb"size 21 99 \[True, True, True\]")
        terminal.type(b"\x03")
        assert terminal.wait() == 130
        assert terminal.output.count(b"KeyboardInterrupt") == 1
        assert terminal.is_restored
    assert b"size 33 77" in (tmp_path / "runs/run/exp/output.log").read_bytes()


def test_keys_reach_the_command(tmp_path: Path) -> None:
    with on_terminal([*OOMPH, "--", *python("print('got', repr(input('name? ')))")], tmp_path) as terminal:
        terminal.wait_for(rb"name\? ")
        terminal.type(b"Ann\r")
        terminal.wait_for(rb"got 'Ann'")
        assert terminal.wait() == 0
        assert terminal.output.count(b"Ann") == 2, "typed text is shown once"
        assert terminal.is_restored


def test_ctrl_d_ends_the_input(tmp_path: Path) -> None:
    with on_terminal([*OOMPH, "--", "cat"], tmp_path) as terminal:
        terminal.type(b"line\r")
        terminal.wait_for(rb"line\r\nline")
        terminal.type(b"\x04")
        assert terminal.wait() == 0


def test_lines_end_as_on_a_plain_terminal(tmp_path: Path) -> None:
    with on_terminal([*OOMPH, "--", "printf", "a\\nb\\n"], tmp_path) as terminal:
        assert terminal.wait() == 0
        assert terminal.output.endswith(b"a\r\nb\r\n")


def test_ctrl_z_suspends_the_job_and_fg_continues_it(tmp_path: Path) -> None:
    with on_terminal(["bash", "--norc", "-i"], tmp_path) as terminal:
        words = f"{sys.executable} -m oomph run -- {sys.executable} count.py"
        (tmp_path / "count.py").write_text(COUNT)
        terminal.type(words.encode() + b"\r")
        terminal.wait_for(rb"count 5\r")
        terminal.type(b"\x1a")
        terminal.wait_for(rb"Stopped")
        terminal.type(b"echo back $((40 + 2))\r")
        terminal.wait_for(rb"back 42")
        before = int(terminal.output.rpartition(b"count ")[2].split()[0])
        terminal.type(b"fg\r")
        terminal.wait_for(rb"count %d\r" % (before + 5))
        terminal.type(b"\x03")
        terminal.wait_for(rb"Record: ")
        terminal.type(b"echo code $?\r")
        terminal.wait_for(rb"code 130")
        terminal.type(b"exit\r")


def test_a_background_job_is_not_stopped_by_its_output(tmp_path: Path) -> None:
    with on_terminal(["bash", "--norc", "-i"], tmp_path) as terminal:
        (tmp_path / "count.py").write_text(COUNT)
        words = f"{sys.executable} -m oomph run -- {sys.executable} count.py"
        terminal.type(words.encode() + b" &\r")
        terminal.wait_for(rb"count 8\r")
        terminal.type(b"fg\r")
        terminal.wait_for(rb"count 30\r")
        terminal.type(b"\x03")
        terminal.wait_for(rb"KeyboardInterrupt")
        terminal.type(b"exit\r")


def test_keys_reach_a_background_job_that_comes_to_the_foreground(tmp_path: Path) -> None:
    with on_terminal(["bash", "--norc", "-i"], tmp_path) as terminal:
        (tmp_path / "ask.py").write_text("import sys, time; time.sleep(3); print('got', repr(sys.stdin.readline()))")
        terminal.type(f"{' '.join(OOMPH)} -- {sys.executable} ask.py &\r".encode())
        terminal.wait_for(rb"\[1\] \d+")
        terminal.type(b"fg\r")
        terminal.wait_for(rb"fg\r\n.*oomph run")
        terminal.type(b"Ann\r")
        terminal.wait_for(rb"got 'Ann\\n'")
        terminal.type(b"exit\r")


def test_ctrl_c_reaches_a_command_once_if_only_its_error_output_is_a_terminal(tmp_path: Path) -> None:
    source = "import sys, time; print(sys.stdout.isatty(), sys.stderr.isatty(), file=sys.stderr); time.sleep(60)"
    (tmp_path / "wait.py").write_text(source)
    words = f"{' '.join(OOMPH)} -- {sys.executable} wait.py | cat"
    with on_terminal(["bash", "-c", words], tmp_path) as terminal:
        terminal.wait_for(rb"False True")
        terminal.type(b"\x03")
        terminal.wait()
        assert terminal.output.count(b"KeyboardInterrupt") == 1


def test_a_command_on_a_terminal_ends_with_a_killed_supervisor(tmp_path: Path) -> None:
    source = "import os, time; print('pid', os.getpid(), os.getppid(), flush=True); time.sleep(60)"
    with on_terminal([*OOMPH, "--", *python(source)], tmp_path) as terminal:
        match = terminal.wait_for(rb"pid (\d+) (\d+)")
        pids = [int(match[1]), int(match[2])]
        terminal.process.send_signal(signal.SIGKILL)
        assert terminal.wait() == -signal.SIGKILL
        wait_for(lambda: not any(map(is_alive, pids)))
    record = load_record(tmp_path / "runs/run/exp/record.jsonl")
    assert not record.has_ended
    assert record.events[0]["argv"][0] == sys.executable


def test_a_closed_window_ends_the_command(tmp_path: Path) -> None:
    source = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(60)"
    with on_terminal([*OOMPH, "--", *python(source)], tmp_path) as terminal:
        pid = int(terminal.wait_for(rb"pid (\d+)")[1])
        os.kill(terminal.process.pid, signal.SIGHUP)
        assert terminal.wait() == 129
        wait_for(lambda: not is_alive(pid))


def test_a_process_that_outlives_a_command_on_a_terminal_goes_on(tmp_path: Path) -> None:
    words = ["sh", "-c", "sleep 30 & echo child $!; exit 4"]
    with on_terminal([*OOMPH, "--", *words], tmp_path) as terminal:
        pid = int(terminal.wait_for(rb"child (\d+)")[1])
        assert terminal.wait() == 4
        assert b"left 1 process running" in terminal.output
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)


def test_a_process_that_outlives_a_command_and_keeps_writing_is_not_waited_for(tmp_path: Path) -> None:
    words = ["sh", "-c", "(while true; do echo line; done) & echo child $!; exit 4"]
    with on_terminal([*OOMPH, "--", *words], tmp_path) as terminal:
        pid = int(terminal.wait_for(rb"child (\d+)")[1])
        try:
            assert terminal.wait() == 4
        finally:
            os.kill(pid, signal.SIGKILL)


def test_file_descriptors_of_the_shell_reach_a_command_on_a_terminal(tmp_path: Path) -> None:
    source = "import os; os.write(3, b'three'); print('open', [n for n in os.listdir('/proc/self/fd') if int(n) > 4])"
    (tmp_path / "write.py").write_text(source)
    plain = f"{sys.executable} write.py 3> file; "
    words = f"{' '.join(OOMPH)} -- {sys.executable} write.py 3> file; {' '.join(OOMPH)} -- cat <(echo hello)"
    with on_terminal(["bash", "-c", plain + words], tmp_path) as terminal:
        terminal.wait_for(rb"hello")
        assert terminal.wait() == 0
        first, second = [line for line in terminal.output.splitlines() if line.startswith(b"open")]
        assert first == second
    assert (tmp_path / "file").read_bytes() == b"three"


def test_much_text_that_a_command_does_not_read_stops_nothing(tmp_path: Path) -> None:
    """As pasting a file into the wrong window."""
    source = "import time\nfor number in range(60):\n    print('tick', number, flush=True)\n    time.sleep(0.05)"
    with on_terminal([*OOMPH, "--", *python(source)], tmp_path) as terminal:
        terminal.wait_for(rb"tick 5\r")
        for _ in range(10):
            terminal.type((b"x" * 79 + b"\r") * 20)
            terminal.wait_for(rb"tick \d+\r")
        terminal.wait_for(rb"tick 59\r")
        assert terminal.wait() == 0
        assert terminal.is_restored


def test_much_text_reaches_a_command_that_reads_late(tmp_path: Path) -> None:
    source = "import sys, time; print('ready', flush=True); time.sleep(2); print(sum(map(len, sys.stdin)))"
    with on_terminal([*OOMPH, "--", *python(source)], tmp_path) as terminal:
        terminal.wait_for(rb"ready")
        for _ in range(3):
            terminal.type((b"x" * 79 + b"\r") * 10)
        terminal.type(b"\x04")
        terminal.wait_for(rb"2400\r")
        assert terminal.wait() == 0


def test_a_command_that_ignores_the_hang_up_goes_on(tmp_path: Path) -> None:
    source = (
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "time.sleep(1)\n"
        "for number in range(2000):\n"
        "    print('line', number, 'x' * 100, flush=True)\n"
        "pathlib.Path('done').touch()\n"
    )
    terminal = Terminal([*OOMPH, "--", *python(source)], tmp_path)
    try:
        terminal.wait_for(rb"ready")
        terminal.hang_up()
        wait_for((tmp_path / "done").exists)
        wait_for(lambda: terminal.process.poll() is not None)
    finally:
        terminal.process.kill()
        terminal.process.wait()
    assert b"line 1999" in (tmp_path / "runs/run/exp/output.log").read_bytes()
