"""A change that was made, and the way back."""

from __future__ import annotations

from collections.abc import Callable


class Patch:
    """What was done to a model or optimizer; `undo()` takes it back, once."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    def undo(self) -> None:
        """Take the change back; a second time does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()
