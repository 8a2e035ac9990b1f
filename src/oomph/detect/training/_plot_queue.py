"""Plots of a run that wait to be drawn."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable

_INTERVAL = 60.0  # seconds; the plots of an epoch take one or two, and training waits meanwhile


class PlotQueue:
    """Draws the latest plot of each name, not after every epoch if epochs are short.

    Args:
        save: draws a plot and writes it, and doesn't fail.
    """

    def __init__(self, save: Callable[[str, Callable[[], bytes]], None]) -> None:
        self._save = save
        self._waiting: dict[str, Callable[[], bytes]] = {}
        self._drawn_at = -math.inf

    def add(self, name: str, draw: Callable[[], bytes]) -> None:
        """Add a plot; it replaces one of the same name."""
        self._waiting[name] = draw

    def draw(self, *, at_once: bool = False) -> None:
        """Draw all plots if the last ones were drawn a minute ago; `at_once` in any case."""
        if not at_once and time.monotonic() - self._drawn_at < _INTERVAL:
            return
        waiting, self._waiting = self._waiting, {}
        for name, draw in waiting.items():
            self._save(name, draw)
        if waiting:
            gc.collect()  # figures refer to themselves and hold megabytes each; on the CPU they count in the peak
        self._drawn_at = time.monotonic()
