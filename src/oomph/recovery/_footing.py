"""From which level an update is tried: what the last ones needed, and now and then less."""

from __future__ import annotations

from collections.abc import Mapping

_LONGEST = 1 << 14  # updates between two tries with less, at most


class Footing:
    """The level that updates begin with.

    One that needed more than the others says nothing of the next; two in a row do. Else a GPU that is always too full
    would be asked in vain before each update.

    Args:
        calm: updates after which less is tried again; twice as many each time that it was too little.

    Attributes:
        level: what both of the last two needed.
        first: what the next one begins with.
        is_calm: whether that is nothing, and the last one needed nothing.
    """

    def __init__(self, calm: int) -> None:
        self.level, self.first, self.is_calm = 0, 0, True
        self._last = 0  # what the last one needed
        self._calm = self._wait = calm
        self._quiet = 0  # updates since the level was another, or less was tried

    def settle(self, reached: int) -> None:
        """Note the level that made an update, begun at the first one."""
        before, tried = self.level, self.first < self.level
        self.level, self._last = min(reached, self._last), reached
        if self.level != before:
            self._quiet, self._wait = 0, self._calm
        elif tried:
            self._quiet, self._wait = 0, min(2 * self._wait, _LONGEST)
        else:
            self._quiet += 1
        self.first = self.level - (self.level > 0 and self._quiet >= self._wait)
        self.is_calm = self.level == reached == 0

    def state_dict(self) -> dict[str, int]:
        """What a resumed run should know, so that it goes on alike."""
        return {"first": self.first, "level": self.level, "last": self._last, "wait": self._wait, "quiet": self._quiet}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where another run stopped."""
        self.first, self.level, self._last = state["first"], state["level"], state["last"]
        self._wait, self._quiet = state["wait"], state["quiet"]
        self.is_calm = self.level == self._last == 0
