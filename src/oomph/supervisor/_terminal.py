"""The terminal that oomph runs on, and the pseudo-terminal that a command gets instead."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import termios
import tty
from typing import Any

from ._streams import STDIN

_SIZE_BYTES = 8  # four shorts: rows, columns, and the size in pixels


class PseudoTerminal:
    """A terminal for a command, with the size and settings of a real one.

    Args:
        model: The file descriptor of the real terminal.
        is_interactive: True if the keys of the real terminal go to it. Otherwise only output passes through it, and the
            real terminal converts line ends.

    Attributes:
        master: The end that oomph reads and writes.
        slave: The end that the command gets.
    """

    def __init__(self, model: int, *, is_interactive: bool) -> None:
        self.master, self.slave = pty.openpty()
        self._model = model
        with contextlib.suppress(termios.error):
            settings = termios.tcgetattr(model)
            if not is_interactive:
                settings[1] &= ~termios.OPOST
            termios.tcsetattr(self.slave, termios.TCSANOW, settings)
        self.copy_size()

    def copy_size(self) -> None:
        """Give it the current size of the real terminal; the kernel then sends SIGWINCH to the command."""
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(self._model, termios.TIOCGWINSZ, b"\0" * _SIZE_BYTES)
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def signals_of(self, keys: bytes) -> list[int]:
        """Return the signals that ask a program to end which keys will send, such as SIGINT for Ctrl-C."""
        with contextlib.suppress(termios.error, OSError):
            settings = termios.tcgetattr(self.master)
            characters = {settings[6][termios.VINTR]: signal.SIGINT, settings[6][termios.VQUIT]: signal.SIGQUIT}
            if settings[3] & termios.ISIG:
                return [number for key, number in characters.items() if key in keys]
        return []

    def close_slave(self) -> None:
        """Close the command's end here, so that the end of the command ends the output."""
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def close(self) -> None:
        """Hang up."""
        self.close_slave()
        os.close(self.master)


def is_foreground() -> bool:
    """Return True if this process may read and change its terminal: it is not a background job of its shell."""
    try:
        return os.tcgetpgrp(STDIN) == os.getpgrp()
    except OSError:
        return True  # not our controlling terminal, so there is no job control


class RawMode:
    """Passes keys of the terminal on without interpreting them, while this process is in the foreground."""

    def __init__(self) -> None:
        self._saved: list[Any] | None = None

    @property
    def is_on(self) -> bool:
        """True while keys are passed on."""
        return self._saved is not None

    def enter(self) -> None:
        """Switch to raw mode, unless this is a background job: the shell would stop it for that."""
        if self._saved is None and is_foreground():
            with contextlib.suppress(termios.error):
                self._saved = termios.tcgetattr(STDIN)
                tty.setraw(STDIN, termios.TCSADRAIN)

    def leave(self) -> None:
        """Restore the settings, also if the shell has moved this job to the background meanwhile."""
        if self._saved is None:
            return
        previous = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(STDIN, termios.TCSADRAIN, self._saved)
        signal.signal(signal.SIGTTOU, previous)
        self._saved = None
