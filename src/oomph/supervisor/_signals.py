"""Signals that a supervisor receives: each is passed to a handler in the main thread, and wakes its loop."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from ._command_process import HANDLED_SIGNALS

Handler = Callable[[int], None]


@contextlib.contextmanager
def handle_signals(handler: Handler) -> Iterator[int]:
    """Call `handler` for each signal while the block runs; yield a file descriptor that is readable after one.

    A signal that is ignored stays ignored, here and in the command: `nohup` and background jobs of scripts rely on it.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        handler(number)

    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    handled = [number for number in HANDLED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in handled if number not in _STOP_SIGNALS}
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, old in previous.items():
            signal.signal(number, old)
        os.close(reader)
        os.close(writer)


# A background job that reads or changes the terminal is stopped by the kernel as usual.
_STOP_SIGNALS = {signal.SIGTTIN, signal.SIGTTOU}


def clear(wakeup: int) -> None:
    """Empty the file descriptor that signals are written to."""
    with contextlib.suppress(BlockingIOError):
        while os.read(wakeup, 4096):
            pass
