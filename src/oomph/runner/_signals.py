"""Ctrl-C and SIGTERM: finish the step, save, end."""

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


class Stop:
    """Whether somebody asked the run to end."""

    def __init__(self) -> None:
        self.asked: int | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals; a second one acts at once, as it would have without this."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may take signals
            return
        before: dict[int, Any] = {number: signal.signal(number, self._ask) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.asked is not None:
            self.end(self.asked)
        self.asked = number
        _log.warning("%s: the step will be finished, then the run saved and ended.", signal.Signals(number).name)

    def end(self, number: int) -> NoReturn:
        """End the run, as the signal would have.

        Raises:
            KeyboardInterrupt: it was Ctrl-C.
            SystemExit: it was SIGTERM.
        """
        self.asked = None
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)
