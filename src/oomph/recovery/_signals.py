"""Ctrl-C and SIGTERM: finish the step, save, then stop."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

_log = logging.getLogger("oomph")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class DeferSignals:
    """Context that delays Ctrl-C and SIGTERM until it exits: an update without a backup must not stop half-way."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}  # those that the context replaced
        self._pending: int | None = None

    def __enter__(self) -> None:
        self._pending = None
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        for signum in _SIGNALS:
            handler = signal.getsignal(signum)
            # Ours may still be installed if another signal's exception left the context.
            if callable(handler) and handler != self._on_signal:
                self._handlers[signum] = handler
                signal.signal(signum, self._on_signal)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        handlers, self._handlers = self._handlers, {}
        if self._pending is not None:
            handlers[self._pending](self._pending, None)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del frame
        self._pending = signum


class StopRequest:
    """A signal that asked the run to stop after the current step.

    Attributes:
        signum: the signal's number; None without a request.
    """

    def __init__(self) -> None:
        self.signum: int | None = None

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """Handle the signals; a second one stops the run at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may set handlers
            return
        before: dict[int, Any] = {signum: signal.signal(signum, self._on_signal) for signum in _SIGNALS}
        try:
            yield
        finally:
            self.signum = None
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del frame
        if self.signum is not None:
            self.stop(self.signum)
        self.signum = signum
        _log.warning("%s: finishing the step, then saving and stopping.", signal.Signals(signum).name)

    def stop(self, signum: int) -> NoReturn:
        """Stop the run as the signal would have.

        Raises:
            KeyboardInterrupt: for Ctrl-C.
            SystemExit: for SIGTERM.
        """
        self.signum = None
        if signum == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + signum)
