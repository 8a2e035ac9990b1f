"""The handle of a reversible change."""

from __future__ import annotations

from collections.abc import Callable


class Patch:
    """A change to a model, an optimizer or torch that `undo()`, or the end of a `with` block, reverts."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    def undo(self) -> None:
        """Revert the change; further calls do nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Patch:  # noqa: PYI034  Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()
