"""Ctrl-C and SIGTERM: finish the step, save, end."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

_log = logging.getLogger("oomph")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BENEATH: Any = sys.modules.get("_signal", signal)  # the same, without looking for enums: a twentieth of the time
_CTRL_C = int(signal.SIGINT)


class HoldInterrupt:
    """While in here, Ctrl-C waits: an update of which there is no copy must not end in the middle."""

    def __init__(self) -> None:
        self._asked = self._holds = False
        self._handler: Any = None  # whose turn it is afterwards
        self._main = threading.main_thread().ident  # only that one may take signals

    def __enter__(self) -> None:
        self._asked, handler = False, _BENEATH.getsignal(_CTRL_C)
        self._holds = callable(handler) and threading.get_ident() == self._main
        if self._holds and handler != self._note:  # it may have stayed, if another signal broke in
            self._handler = handler
            _BENEATH.signal(_CTRL_C, self._note)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._holds:
            _BENEATH.signal(_CTRL_C, self._handler)
        if self._asked:
            self._handler(_CTRL_C, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._asked = True


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
