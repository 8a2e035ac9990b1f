"""Signals that end a command."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

_SIGTERM_EXIT_CODE = 128 + 15  # as shells report it


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, so that a command cleans up: it restores the terminal and ends its processes."""

    def handle(number: int, frame: object) -> NoReturn:
        del number, frame
        sys.exit(_SIGTERM_EXIT_CODE)

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
