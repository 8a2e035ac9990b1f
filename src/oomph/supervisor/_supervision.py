"""One run of a command under supervision: its streams, signals and limits are passed on until it ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from ..monitor import Recorder, Sampler
from ._cgroup import CommandCgroup
from ._command_process import CommandProcess, CommandStart
from ._kernel_kills import KernelKills
from ._limits import LimitWatch
from ._output import OutputCopy, OutputLog, open_pipe
from ._processes import CommandTree
from ._request import HostLimits, StopReason
from ._signals import clear, handle_signals
from ._streams import STDERR, STDIN, STDOUT, StreamKind, Streams, WrittenFile, inherited_files
from ._terminal import PseudoTerminal, RawMode, is_foreground

_TICK_SECONDS = 1.0
_KEY_BYTES = 4096
_MAX_KEYS = 1 << 16
_SIGNAL_SECONDS = 600.0  # a program that was asked to end may save its work first; later, its end is its own
_TERMINAL_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        status: Its wait status.
        seconds: The time it ran.
        stop: Why the supervisor stopped it; None if it didn't.
        signals: Signals from outside that ask a program to end and were passed on in its last minutes.
        survivors: Processes that it left running.
        kills: What the kernel killed just before its end.
        files: The files with its output.
    """

    status: int
    seconds: float
    stop: StopReason | None = None
    signals: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()
    kills: KernelKills = field(default_factory=KernelKills)
    files: tuple[WrittenFile, ...] = field(default_factory=tuple)


class Supervision:
    """Runs a command once.

    Args:
        argv: The command and its arguments.
        tree: The command with all that it starts.
        streams: The standard streams of this process.
        limits: The limits of the command.
        cgroup: The cgroup that it runs in; None for that of this process.
        log: The copy of its output.
    """

    def __init__(
        self,
        argv: Sequence[str],
        tree: CommandTree,
        streams: Streams,
        limits: HostLimits,
        cgroup: CommandCgroup | None,
        log: OutputLog,
    ) -> None:
        self._argv, self._tree, self._streams = argv, tree, streams
        self._limits, self._cgroup, self._log = limits, cgroup, log
        self._terminal: PseudoTerminal | None = None
        self._raw = RawMode()
        self._keys = b""  # typed, and not yet taken by the command's terminal
        self._copies: dict[int, OutputCopy] = {}
        self._process: CommandProcess | None = None
        self._watch: LimitWatch | None = None
        self._status: int | None = None
        self._signals: list[tuple[float, int]] = []  # with their times
        self._early_signals: list[int] = []
        self._is_group_shared = streams.stdin is StreamKind.TERMINAL and not streams.is_interactive

    def run(self, recorder: Recorder, env: dict[str, str]) -> CommandEnd:
        """Start the command, sample its processes into a Record, and wait for its end.

        Raises:
            StartError: The command doesn't exist or can't be executed.
        """
        files = (*inherited_files(self._streams), WrittenFile(self._log.path, _file_size(self._log.path)))
        start_time = time.monotonic()
        with handle_signals(self._on_signal) as wakeup, self._started(env) as process:
            is_joined = self._cgroup is not None and self._cgroup.contains(process.pid)
            cgroup = self._cgroup if is_joined else None
            self._watch = LimitWatch(process, self._tree, self._limits, cgroup, lambda: _written(files))
            with _sampled(recorder, process.pid):
                self._watch.start()
                try:
                    self._pass_on_until_end(process, wakeup)
                    kills = self._watch.kernel_kills
                finally:
                    self._watch.close()
            seconds = time.monotonic() - start_time
            for copy in tuple(self._copies.values()):
                copy.drain(self._log)
            return CommandEnd(
                status=self._status or 0,
                seconds=seconds,
                stop=self._watch.reason,
                signals=tuple(number for when, number in self._signals if when > time.monotonic() - _SIGNAL_SECONDS),
                survivors=tuple(self._survivors(process)),
                kills=kills,
                files=files,
            )

    @contextlib.contextmanager
    def _started(self, env: dict[str, str]) -> Iterator[CommandProcess]:
        descriptors, ours = self._connect()
        try:
            self._process = CommandProcess(
                CommandStart(
                    self._argv,
                    descriptors,
                    self._streams.others,
                    env,
                    terminal=self._terminal.slave if self._terminal and self._streams.is_interactive else None,
                    is_in_group=self._is_group_shared,
                    prepare=(lambda: None) if self._cgroup is None else self._cgroup.join,
                ),
                self._tree,
            )
            while self._early_signals:
                self._process.send(self._early_signals.pop(0))
            for descriptor in ours:
                os.close(descriptor)
            if self._terminal is not None:
                self._terminal.close_slave()
            if self._streams.is_interactive:
                self._raw.enter()
            yield self._process
        finally:
            self._raw.leave()
            for source in [source for source, copy in self._copies.items() if not copy.is_terminal]:
                self._close_copy(source)
            if self._terminal is not None:
                self._terminal.close()
            if self._process is not None:
                self._process.close()

    def _connect(self) -> tuple[dict[int, int], list[int]]:
        """Return the command's standard streams, and the file descriptors to close here once it has them."""
        streams = self._streams
        terminals = [stream for stream, kind in streams.kinds.items() if kind is StreamKind.TERMINAL]
        if terminals:
            self._terminal = PseudoTerminal(terminals[0], is_interactive=streams.is_interactive)
            self._add_copy(OutputCopy(self._terminal.master, terminals[0], is_terminal=True))
        uses_keys = self._terminal is not None and streams.is_interactive
        descriptors = {STDIN: self._terminal.slave if self._terminal and uses_keys else STDIN}
        if streams.stdin is StreamKind.CLOSED:
            descriptors[STDIN] = subprocess.DEVNULL
        ours: list[int] = []
        for stream, kind in streams.kinds.items():
            if kind is StreamKind.TERMINAL and self._terminal is not None:
                descriptors[stream] = self._terminal.slave
            elif kind is StreamKind.PIPE and stream == STDERR and streams.is_merged:
                descriptors[stream] = descriptors[STDOUT]
            elif kind is StreamKind.PIPE:
                reader, descriptors[stream] = open_pipe()
                ours.append(descriptors[stream])
                self._add_copy(OutputCopy(reader, stream))
            else:
                descriptors[stream] = stream if kind is StreamKind.FILE else subprocess.DEVNULL
        return descriptors, ours

    def _add_copy(self, copy: OutputCopy) -> None:
        os.set_blocking(copy.source, False)
        self._copies[copy.source] = copy

    def _close_copy(self, source: int) -> None:
        copy = self._copies.pop(source)
        if not copy.is_terminal:  # that one is closed with its terminal
            os.close(source)

    def _pass_on_until_end(self, process: CommandProcess, wakeup: int) -> None:
        self._follow(process)  # it may have ended before the signal of that could be seen
        while self._status is None:
            targets = [self._terminal.master] if self._terminal is not None and self._keys else []
            ready = select.select([wakeup, *self._sources(process)], targets, [], _TICK_SECONDS)[0]
            if self._streams.is_interactive:
                self._raw.enter()  # `fg` brings a running job to the foreground without a signal
            if wakeup in ready:
                clear(wakeup)
            for source in [source for source in ready if source in self._copies]:
                if not self._copies[source].copy(self._log):
                    self._close_copy(source)
            if STDIN in ready:
                self._read_keys()
            self._pass_keys()
            if not ready or wakeup in ready or process.status_pipe in ready:
                self._follow(process)

    def _sources(self, process: CommandProcess) -> list[int]:
        sources = list(self._copies)
        if process.status_pipe is not None:
            sources.append(process.status_pipe)
        if self._raw.is_on and len(self._keys) < _MAX_KEYS:
            sources.append(STDIN)
        return sources

    def _follow(self, process: CommandProcess) -> None:
        for status in process.reap():
            if not os.WIFSTOPPED(status):
                self._status = status
            elif self._streams.is_interactive or os.WSTOPSIG(status) in _TERMINAL_STOPS:
                self._suspend()

    def _read_keys(self) -> None:
        keys = b""
        with contextlib.suppress(OSError):
            keys = os.read(STDIN, _KEY_BYTES)
        if not keys:
            self._raw.leave()  # the terminal is gone
        elif self._terminal is not None:
            self._signals += [(time.monotonic(), number) for number in self._terminal.signals_of(keys)]
            self._keys += keys

    def _pass_keys(self) -> None:
        """Write as many keys as the command's terminal takes: one that is full may wait for the command's end."""
        if self._terminal is not None and self._keys:
            with contextlib.suppress(OSError):  # full, or its last reader has closed it
                self._keys = self._keys[os.write(self._terminal.master, self._keys) :]

    def _suspend(self) -> None:
        """Stop this process, too, so that the shell takes the terminal back; the command continues with it."""
        self._raw.leave()
        if self._streams.is_interactive:
            # The key went to the command only, so the rest of this job is stopped here, as the kernel would do it.
            # Without a shell with job control it has no effect.
            previous = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.killpg(os.getpgrp(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, previous)
        else:
            os.kill(os.getpid(), signal.SIGSTOP)
        self._resume()

    def _resume(self) -> None:
        if self._streams.is_interactive:
            self._raw.enter()
        if self._terminal is not None:
            self._terminal.copy_size()
        if self._watch is not None:
            self._watch.restart_idle_time()
        if self._process is not None:
            self._process.send_to_group(signal.SIGCONT)

    def _survivors(self, process: CommandProcess) -> list[int]:
        return [pid for pid, rss in self._tree.read().items() if rss and pid != process.leader]

    def _on_signal(self, number: int) -> None:
        """Pass a signal on. Ctrl-C reaches the whole group of a terminal, so there it is not sent twice."""
        process = self._process
        if number == signal.SIGWINCH and self._terminal is not None:
            self._terminal.copy_size()
        if number == signal.SIGCONT:
            self._resume()
        if number in _STOPPING:
            self._signals.append((time.monotonic(), number))
        if number in {signal.SIGCHLD, signal.SIGCONT}:
            return
        if process is None:
            self._early_signals.append(number)  # passed on after the start
        elif number in {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP}:
            if not (self._is_group_shared and is_foreground()):
                process.send_to_group(number)
        elif not (number == signal.SIGWINCH and self._streams.is_interactive):
            process.send(number)


def _sampled(recorder: Recorder, pid: int) -> contextlib.AbstractContextManager[object]:
    try:
        return Sampler(recorder, pid=pid)
    except UsageError:
        return contextlib.nullcontext()  # it has already ended


def _written(files: Sequence[WrittenFile]) -> int:
    return sum(file.size for file in files)


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
