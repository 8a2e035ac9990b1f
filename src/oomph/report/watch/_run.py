"""When `oomph watch` can show its screen, and what it returns; textual is imported only if it is shown."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from ..notebook import in_notebook


@dataclass(frozen=True)
class ScreenExit:
    """Why the screen was closed.

    Attributes:
        last_line: The last sample of the first page as one line; empty if there was none.
        has_ended: True if the watched process has ended.
        is_complete: True if the requested number of samples was taken.
        signal: Number of the signal that closed it.
        error: The exception that closed it.
    """

    last_line: str = ""
    has_ended: bool = False
    is_complete: bool = False
    signal: int | None = None
    error: BaseException | None = None


def can_show_screen() -> bool:
    """Return True on a terminal that can move its cursor; not in a pipe, in a notebook or with TERM=dumb."""
    # textual reads keys from standard input and draws on standard error.
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    return (
        sys.stdout is sys.__stdout__
        and not in_notebook()
        and all(stream is not None and _is_terminal(stream) for stream in streams)
        and os.environ.get("TERM", "").lower() not in {"dumb", "unknown"}
        and "utf" in (getattr(sys.__stderr__, "encoding", "") or "").lower()
    )


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False  # closed


def run_screen(pid: int | None, interval: float, count: int) -> ScreenExit:
    """Show the screen until it is closed.

    Args:
        pid: The process to watch; the whole machine if None.
        interval: Seconds between samples.
        count: Number of samples; 0 means no limit.

    Raises:
        UsageError: The process doesn't exist.
    """
    from ._app import WatchApp  # noqa: PLC0415  textual takes a tenth of a second

    return WatchApp(pid, interval, count).show()
