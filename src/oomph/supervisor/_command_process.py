"""The process of a command: started in a group or session of its own, with its standard streams and its cgroup.

On a terminal there is a process in between, the leader of the command's session: a group whose parent is in another
session can't be stopped by Ctrl-Z. It starts the command, passes its changes of state on, and does nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from ._processes import CommandTree, send_signal
from ._streams import STDERR, STDIN, STDOUT

# Signals that the supervisor handles while a command runs, or that keys of a terminal send.
HANDLED_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGCONT,
    signal.SIGWINCH,
    signal.SIGCHLD,
)
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # exit codes, as shells use them
_READ_BYTES = 1 << 16


class StartError(Exception):
    """The command could not be started; `exit_code` is that of a shell."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number
        self.exit_code = _NOT_FOUND if number in {errno.ENOENT, errno.ENOTDIR} else _NOT_EXECUTABLE


@dataclass(frozen=True)
class CommandStart:
    """How a command is started.

    Attributes:
        argv: The command and its arguments.
        streams: The file descriptors that become its standard streams, or `subprocess.DEVNULL`.
        others: The file descriptors that it keeps besides.
        env: Environment variables that are added.
        terminal: The end of the pseudo-terminal that becomes its controlling terminal; None without one.
        is_in_group: True if it stays in the process group of oomph, whose terminal it reads.
        prepare: Called in the new process before the command replaces it.
    """

    argv: Sequence[str]
    streams: Mapping[int, int]
    others: Sequence[int] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    terminal: int | None = None
    is_in_group: bool = False
    prepare: Callable[[], None] = lambda: None


class CommandProcess:
    """A command that was started.

    Args:
        start: How it is started.
        tree: The command with all that it starts.

    Attributes:
        pid: Its process, which leads a group of its own unless it was started in the group of oomph.
        has_ended: True after its end; its pid may then be that of another process.
        leader: The leader of its session, on a terminal; else None.
        status_pipe: A file descriptor that is readable when its state has changed, on a terminal; else None.

    Raises:
        StartError: It doesn't exist or can't be executed.
    """

    def __init__(self, start: CommandStart, tree: CommandTree) -> None:
        self._tree = tree
        self.leader: int | None = None
        self.status_pipe: int | None = None
        self._unread = b""
        self._pending: list[dict[str, int | str]] = []  # changes that came with the first one
        if start.terminal is None:
            self.pid = _start(start)
        else:
            self.pid = self._start_session(start)
        self._is_in_group = start.is_in_group
        self.has_ended = False

    def send(self, number: int) -> None:
        """Send it a signal."""
        if not self.has_ended:
            send_signal(self.pid, number)

    def send_to_group(self, number: int) -> None:
        """Send a signal to its processes, as the keys of a terminal do."""
        if self._is_in_group:
            for pid in self._tree.read():
                send_signal(pid, number)
        elif not self.has_ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def reap(self) -> list[int]:
        """Return its new wait statuses; also collects all other child processes that have ended, such as orphans."""
        statuses = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self.pid:
                statuses.append(status)
        changes, self._pending = [*self._pending, *self._read_changes()], []
        statuses += [int(change["status"]) for change in changes]
        self.has_ended = self.has_ended or any(not os.WIFSTOPPED(status) for status in statuses)
        return statuses

    def close(self) -> None:
        """Release the pipe of the session's leader."""
        if self.status_pipe is not None:
            os.close(self.status_pipe)
            self.status_pipe = None

    def _start_session(self, start: CommandStart) -> int:
        self.status_pipe, writer = os.pipe()
        self.leader = os.fork()
        if self.leader == 0:
            os.close(self.status_pipe)
            _lead_session(start, writer)
        os.close(writer)
        failure: dict[str, int | str] = {"errno": errno.EIO, "text": "its session can't be started"}
        first, *self._pending = self._read_changes() or [failure]
        os.set_blocking(self.status_pipe, False)
        if "pid" not in first:
            os.waitpid(self.leader, 0)
            self.close()
            raise StartError(int(first["errno"]), str(first["text"]))
        return int(first["pid"])

    def _read_changes(self) -> list[dict[str, int | str]]:
        if self.status_pipe is None:
            return []
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.status_pipe, _READ_BYTES)
            self._unread += data
            if not data:
                self.close()  # without its leader, the command becomes a child of the supervisor
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]


def _lead_session(start: CommandStart, writer: int) -> NoReturn:
    """Run as the leader of the command's session; never returns to the code of the supervisor."""

    def report(**change: int | str) -> None:
        os.write(writer, json.dumps(change).encode() + b"\n")

    try:
        assert start.terminal is not None  # noqa: S101  a session is started for a terminal
        signal.set_wakeup_fd(-1)
        restored = _ignore_signals()
        _close_others({writer, start.terminal, *start.streams.values(), *start.others})
        os.setsid()
        fcntl.ioctl(start.terminal, termios.TIOCSCTTY, 0)
        pid = _start(start, restored)
        _close_others({writer, start.terminal})
        report(pid=pid)
        has_ended = False
        while not has_ended:
            _, status = os.waitpid(pid, os.WUNTRACED)
            has_ended = os.WIFEXITED(status) or os.WIFSIGNALED(status)
            if has_ended:
                # The foreground group is hung up when the leader of a session ends; that must not be what the command
                # left running. A terminal that is gone has hung up already.
                with contextlib.suppress(OSError):
                    os.tcsetpgrp(start.terminal, os.getpgrp())
            report(status=status)
    except StartError as error:
        report(errno=error.number, text=str(error))
    except OSError as error:
        report(errno=error.errno or 0, text=str(error.strerror))
    finally:
        os._exit(0)


def _close_others(kept: set[int]) -> None:
    """Close what the session's leader doesn't need: an open end here would hide the end of a terminal or pipe."""
    low = STDERR + 1
    for descriptor in sorted(descriptor for descriptor in kept if descriptor >= low):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def _ignore_signals() -> tuple[int, ...]:
    """Replace the supervisor's handlers in the session's leader; return the signals that the command must not ignore.

    Keys send signals to the command only, and SIGHUP ends the leader when the terminal is hung up.
    """
    handled = [number for number in HANDLED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    ends = {signal.SIGHUP, signal.SIGCHLD}
    for number in handled:
        signal.signal(number, signal.SIG_DFL if number in ends else signal.SIG_IGN)
    return tuple(number for number in handled if number not in ends)


def _start(start: CommandStart, restored: Sequence[int] = ()) -> int:
    def prepare() -> None:
        start.prepare()
        if not start.is_in_group:
            os.setpgid(0, 0)
        if start.terminal is not None:
            os.tcsetpgrp(start.terminal, os.getpgrp())  # SIGTTOU is still ignored
        for number in restored:
            signal.signal(number, signal.SIG_DFL)

    def execute(argv: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603  the user's own command, without a shell
            list(argv),
            stdin=start.streams[STDIN],
            stdout=start.streams[STDOUT],
            stderr=start.streams[STDERR],
            env={**os.environ, **start.env},
            pass_fds=start.others,
            preexec_fn=prepare,  # noqa: PLW1509  no other thread runs when a command is started
        )

    try:
        try:
            process = execute(start.argv)
        except OSError as error:
            script = _script_without_interpreter(start.argv[0]) if error.errno == errno.ENOEXEC else None
            if script is None:
                raise
            process = execute(["/bin/sh", script, *start.argv[1:]])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        number = getattr(error, "errno", None) or 0
        raise StartError(number, os.strerror(number) if number else str(error)) from None
    process.returncode = 0  # it is waited for by pid, together with all others
    return process.pid


def _script_without_interpreter(program: str) -> str | None:
    """Return the path of a script that doesn't begin with #!, which shells run themselves; None if it is no text."""
    path = shutil.which(program)
    if path is None:
        return None
    with Path(path).open("rb") as file:
        return None if b"\0" in file.readline(_READ_BYTES) else path
