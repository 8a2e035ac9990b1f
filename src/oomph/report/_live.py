"""A view that is updated continuously: in place on a terminal, line by line in a pipe."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.live import Live

from ._watch import WatchView


class LiveView:
    """Shows a view as it changes; as a context manager it always restores the terminal."""

    def __init__(self, view: WatchView) -> None:
        self._view = view
        console = Console(file=sys.stdout, highlight=False, force_jupyter=False)
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> LiveView:  # noqa: PYI034  Self came with Python 3.11
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self) -> None:
        """Draw the current state of the view."""
        if self._live is not None:
            self._live.update(self._view.table(), refresh=True)
        else:
            sys.stdout.write(self._view.line() + "\n")
            sys.stdout.flush()
