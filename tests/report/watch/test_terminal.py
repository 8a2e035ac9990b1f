"""The screen in real terminals: a pseudo-terminal for signals, tmux for keys and sizes."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pty = pytest.importorskip("pty", reason="needs a Unix terminal")
termios = pytest.importorskip("termios", reason="needs a Unix terminal")

WATCH = [sys.executable, "-m", "oomph", "watch"]
SECONDS = 30.0

# A session leader that opens a terminal makes it its controlling terminal, so that Ctrl-C reaches it.
_CONTROLLING_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
if sys.argv[1] == "broken":
    import oomph.monitor
    oomph.monitor.Watcher.read_progress = lambda self, pid: 1 / 0
sys.argv = ["oomph", "watch", *sys.argv[2:]]
from oomph.cli import main
main()
"""


def on_terminal(
    arguments: list[str], end: Callable[[int, int], object], mode: str = "normal", **environment: str
) -> tuple[bytes, int, bool]:
    """Call `end` once the screen is drawn; return the output, the exit code, and True if the settings are restored."""
    terminal, inside = pty.openpty()
    before = termios.tcgetattr(inside)
    watching = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLING_TERMINAL, mode, *arguments],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", **environment},
    )
    output, has_ended, late = b"", False, time.monotonic() + SECONDS
    while watching.poll() is None and time.monotonic() < late:
        output += _read(terminal)
        if not has_ended and b"q quit" in output:
            end(watching.pid, terminal)
            has_ended = True
    code = watching.wait(timeout=5)
    while more := _read(terminal):
        output += more
    is_restored = termios.tcgetattr(inside) == before
    os.close(inside)
    os.close(terminal)
    return output, code, is_restored


def _read(terminal: int) -> bytes:
    return os.read(terminal, 65536) if select.select([terminal], [], [], 0.1)[0] else b""


def assert_clean(output: bytes) -> None:
    """The modes that the screen switches on are off again: alternate screen, hidden cursor, paste and focus reports."""
    for mode, final in ((b"1049", b"l"), (b"25", b"h"), (b"2004", b"l"), (b"1004", b"l"), (b"7", b"h")):
        settings = re.findall(rb"\x1b\[\?" + mode + rb"([hl])", output)
        assert len(set(settings)) == 2, mode
        assert settings[-1] == final, mode
    assert not re.search(rb"\x1b\[\?100[0236]h", output), "the mouse was never on"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda pid, terminal: os.write(terminal, b"q"), 0),
        (lambda pid, terminal: os.write(terminal, b"\x03"), 0),
        (lambda pid, terminal: os.kill(pid, signal.SIGINT), 0),
        (lambda pid, terminal: os.kill(pid, signal.SIGTERM), 143),
        (lambda pid, terminal: os.kill(pid, signal.SIGHUP), 129),
    ],
    ids=["q", "ctrl-c", "sigint", "sigterm", "sighup"],
)
def test_terminal_is_always_restored(end: Callable[[int, int], object], code: int) -> None:
    output, status, is_restored = on_terminal(["--interval", "0.2"], end)
    assert status == code
    assert b"Traceback" not in output
    assert is_restored
    assert_clean(output)


@pytest.mark.medium
def test_terminal_is_restored_before_an_error_is_shown() -> None:
    output, code, is_restored = on_terminal([str(os.getpid())], lambda pid, terminal: None, "broken")
    assert code == 1
    assert is_restored
    assert_clean(output)
    assert output.rfind(b"ZeroDivisionError") > output.rfind(b"\x1b[?1049l")


@pytest.mark.large
def test_no_color_has_no_color() -> None:
    def quit_screen(_: int, terminal: int) -> None:
        os.write(terminal, b"q")

    colors = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-7]|4[0-7]|9[0-7]|[34]8;[\d;]+)(?:;\d+)*m")
    plain, _, _ = on_terminal([], quit_screen, NO_COLOR="1")
    colored, _, _ = on_terminal([], quit_screen)
    assert not colors.search(plain)
    assert colors.search(colored)


@pytest.mark.medium
def test_dumb_terminal_gets_lines() -> None:
    output, code, _ = on_terminal(["--count", "2", "--interval", "0.1"], lambda *_: None, TERM="dumb")
    assert code == 0
    assert b"\x1b" not in output
    assert len(output.splitlines()) == 2


class Tmux:
    """A terminal of tmux with a shell in it."""

    def __init__(self, folder: Path) -> None:
        self._socket = f"oomph-{os.getpid()}-{folder.name}"
        self._folder = folder
        self.run("new-session", "-d", "-x", "100", "-y", "30", "sh")
        self.type("PS1='ready> '")
        self.wait_for("ready>")

    def run(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._socket, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def type(self, text: str) -> None:
        self.run("send-keys", "-l", text)
        self.run("send-keys", "Enter")

    def press(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def watch(self, *arguments: str) -> None:
        # A shell that exports the size of the terminal must not hide a resize.
        command = " ".join(["COLUMNS=80", "LINES=24", *WATCH, *arguments])
        self.type(f"clear; stty -g > {self._folder}/before; {command}; echo code=$?")

    @property
    def screen(self) -> str:
        return self.run("capture-pane", "-p")

    def state(self) -> str:
        """Return alternate screen, cursor, mouse and line wrap of the terminal."""
        return self.run("display-message", "-p", "#{alternate_on}#{cursor_flag}#{mouse_any_flag}#{wrap_flag}").strip()

    def wait_for(self, pattern: str) -> str:
        late = time.monotonic() + SECONDS
        while not re.search(pattern, screen := self.screen, re.MULTILINE):
            assert time.monotonic() < late, f"no {pattern!r} in:\n{screen}"
            time.sleep(0.05)
        return screen

    def assert_restored(self) -> None:
        assert self.state() == "0101"
        self.type(f"stty -g > {self._folder}/after; echo done=$?")
        self.wait_for("done=0")
        assert (self._folder / "after").read_text() == (self._folder / "before").read_text()


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Tmux(tmp_path)
    yield terminal
    terminal.run("kill-server")


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    """A process with two children."""
    child = "import sys; sys.stdin.read()"
    code = (
        f"import subprocess, sys\nfor _ in range(2): c = subprocess.Popen([sys.executable, '-c', {child!r}])\nc.wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    yield process
    for running in psutil.Process(process.pid).children() if process.poll() is None else []:
        running.kill()
    process.kill()
    process.communicate()


@pytest.mark.medium
def test_selection_pages_and_sizes_in_tmux(tmux: Tmux, tree: subprocess.Popen[bytes]) -> None:
    tmux.watch(str(tree.pid), "--interval", "0.2")
    screen = tmux.wait_for("q quit")
    assert re.search(rf"^Process {tree.pid} \(", screen)
    assert tmux.state() == "1000"
    tmux.wait_for(rf"^ *>{tree.pid} ")
    child = psutil.Process(tree.pid).children()[0].pid
    tmux.press("Down")
    tmux.wait_for(rf"^ *>{child} ")
    tmux.press("Enter")
    tmux.wait_for(rf"^Process {child} \(")
    tmux.run("resize-window", "-x", "40", "-y", "10")
    tmux.wait_for(r"^q quit .*…$")  # drawn for 40 columns
    assert re.search(r"^RAM +[\d.]+ .iB +[\d.]+ .iB +\d+%$", tmux.screen, re.MULTILINE)
    tmux.press("Escape")
    tmux.wait_for(rf"^Process {tree.pid} \(")
    tmux.run("resize-window", "-x", "120", "-y", "30")
    tmux.wait_for(r"last 2 min")
    tree.kill()
    screen = tmux.wait_for(r"code=0")
    assert f"Process {tree.pid} has ended." in screen
    tmux.assert_restored()


@pytest.mark.large
def test_suspend_and_resume(tmux: Tmux) -> None:
    tmux.type("set -m")
    tmux.watch("--interval", "0.2")
    tmux.wait_for("q quit")
    tmux.press("C-z")
    tmux.wait_for("code=1[0-9][0-9]")
    assert tmux.state() == "0101"
    tmux.type("clear; fg")
    tmux.wait_for("q quit")
    assert tmux.state() == "1000"
    tmux.press("q")
    tmux.wait_for("ready>")
    tmux.assert_restored()


@pytest.mark.large
def test_a_terminal_that_is_closed_leaves_no_process(tmux: Tmux) -> None:
    tmux.watch()
    tmux.wait_for("q quit")
    shell = psutil.Process(int(tmux.run("display-message", "-p", "#{pane_pid}")))
    (watching,) = shell.children()
    tmux.run("kill-session")
    watching.wait(timeout=10)
    tmux.run("new-session", "-d", "sh")  # the fixture closes the server


@pytest.mark.large
def test_the_screen_takes_less_than_3_percent_of_a_core(tmux: Tmux, tree: subprocess.Popen[bytes]) -> None:
    tmux.watch(str(tree.pid))
    tmux.wait_for("q quit")
    (watching,) = psutil.Process(int(tmux.run("display-message", "-p", "#{pane_pid}"))).children()
    time.sleep(2)
    before, start = watching.cpu_times(), time.monotonic()
    time.sleep(20)
    after, end = watching.cpu_times(), time.monotonic()
    tmux.press("q")
    cpu = after.user + after.system - before.user - before.system
    assert 0 < cpu / (end - start) < 0.03
