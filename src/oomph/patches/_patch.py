"""The handle of a reversible change."""

from __future__ import annotations

from collections.abc import Callable


class Patch:
    """A change to a model or optimizer that `undo()` reverts."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    def undo(self) -> None:
        """Revert the change; further calls do nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
