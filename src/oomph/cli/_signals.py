"""Signals that end a command."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

from ..errors import RankLost

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


@contextlib.contextmanager
def report_lost_rank() -> Iterator[None]:
    """Let a rank that ends because another one is lost say so.

    The launcher notices the lost rank at the same time, and sends SIGTERM to the others. It waits for 30 seconds before
    it kills them. After RankLost, SIGTERM stays ignored, since the process ends.
    """

    def handle(number: int, frame: object) -> None:
        del number, frame
        if not _is_after_lost_rank(sys.exc_info()[1]):
            sys.exit(_SIGTERM_EXIT_CODE)

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    except RankLost:
        previous = signal.SIG_IGN
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)


def _is_after_lost_rank(error: BaseException | None) -> bool:
    """Return True if RankLost is being handled, also if another error occurred meanwhile."""
    while error is not None and not isinstance(error, RankLost):
        error = error.__context__
    return error is not None
