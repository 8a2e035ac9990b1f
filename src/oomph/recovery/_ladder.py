"""What is done so that a step fits, cheapest first, and undone when it would fit without."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ._step_report import Fallback

_log = logging.getLogger("oomph")
_LONGEST = 1 << 14  # steps between two attempts to grow, at most


@dataclass(frozen=True)
class Last:
    """A rung beyond smaller pieces.

    Attributes:
        rung: what it is.
        climb: does it; says whether it did anything.
        leave: undoes it; None for one that stays.
    """

    rung: Fallback
    climb: Callable[[], bool]
    leave: Callable[[], None] | None = None


class Ladder:
    """How small the pieces are, and what else is in force.

    Args:
        limit: samples in a micro-batch, at most; None for as many as there are.
        calm: steps without a fault after which larger pieces are tried.
        lasts: the rungs beyond pieces, cheapest first.
        frees: whether freeing cached blocks alone may help, as it does on a GPU.
    """

    def __init__(self, *, limit: int | None, calm: int, lasts: tuple[Last, ...], frees: bool) -> None:
        self._limit, self._calm, self._lasts, self._frees = limit, calm, lasts, frees
        self.micro: int | None = None  # samples in a piece, at most; None: as many as there are
        self._climbed = 0  # how many of the last rungs are in force
        self._quiet = 0  # steps since the last fault
        self._wait = calm
        self._before: int | None = None  # the size of pieces before the one that is being tried
        self._freed = self._collected = False  # in this step
        self._most = 0  # samples of the largest batch since the first fault
        self.is_calm = True  # nothing has run short, or everything that was done about it is undone

    @property
    def is_climbed(self) -> bool:
        """Whether anything is in force that could be undone."""
        if self.micro is not None:
            return True
        return self._climbed > 0 and any(last.leave for last in self._lasts[: self._climbed])

    @property
    def is_deciding(self) -> bool:
        """Whether the next step, if it succeeds, may be followed by larger pieces."""
        return not self.is_calm and self._quiet + 1 >= self._wait and self.is_climbed

    def pieces(self, samples: int, smallest: int = 1) -> int:
        """Into how many pieces a batch goes, none of them below the smallest size."""
        size = min(self.micro or samples, self._limit or samples)
        return max(1, min(math.ceil(samples / size), samples // smallest))

    def climb(
        self,
        samples: int,
        smallest: int = 1,
        foresees: Callable[[int], bool] | None = None,
        *,
        holes: bool = True,
    ) -> Fallback | None:
        """Do the next thing after a fault; None if there is nothing left.

        Args:
            samples: of the batch.
            smallest: samples that a piece must have.
            foresees: whether pieces of so many samples would fit, where somebody can tell.
            holes: whether there may be room between blocks, which is found when all of them are returned.
        """
        self._quiet, self.is_calm = 0, False
        self._freed = self._freed or not holes
        rung = self._next(samples, smallest, foresees)
        if rung is not None:
            _log.warning("Memory ran short: %s.", rung)
        return rung

    def _next(self, samples: int, smallest: int, foresees: Callable[[int], bool] | None) -> Fallback | None:
        if self._before is not None:
            self.micro, self._before = self._before, None
            self._wait = min(2 * self._wait, _LONGEST)
            return Fallback(
                "pieces", f"back to pieces of {self.micro}", f"larger ones are tried again in {self._wait} steps"
            )
        if self._frees and not self._freed:
            self._freed = True
            return Fallback("free", "freed cached blocks", "the step is done again")
        pieces = self.pieces(samples, smallest)
        if pieces < samples // smallest:
            half = max(smallest, math.ceil(samples / (2 * pieces)))
            self.micro = half if foresees is None else _largest(half, smallest, foresees)
            pieces = self.pieces(samples, smallest)
            return Fallback(
                "pieces", f"{pieces} pieces of up to {self.micro} samples", "smaller kernels, same gradient"
            )
        if not self._collected:  # a shortage that passes must not end the run where no piece can be smaller
            self._collected = True
            return Fallback("collect", "collected what nobody uses any more", "the step is done again")
        return self._climb_last()

    def _climb_last(self) -> Fallback | None:
        while self._climbed < len(self._lasts):
            last = self._lasts[self._climbed]
            self._climbed += 1
            if last.climb():
                return last.rung
        return None

    def settle(self, samples: int, fits: Callable[[int], bool]) -> None:
        """Count a step that succeeded, and grow after enough of them.

        Args:
            samples: of the batch.
            fits: whether pieces of so many samples would fit, as far as anybody knows.
        """
        self._freed = self._collected = False
        if self._before is not None:
            self._before, self._wait = None, self._calm
        if not self.is_climbed:
            self._most, self.is_calm = 0, True
            return
        self._most = max(self._most, samples)
        self._quiet += 1
        if self._quiet < self._wait:
            return
        self._quiet = 0
        if self.micro is not None:
            self._grow(fits)
        else:
            self._leave_last()

    def _grow(self, fits: Callable[[int], bool]) -> None:
        assert self.micro is not None  # noqa: S101  the caller looked
        larger = min(2 * self.micro, self._most)
        if not fits(larger):
            return
        if self.micro >= self._most:
            self.micro, self._wait = None, self._calm
            return
        _log.info("%d calm steps: trying pieces of %d samples again.", self._wait, larger)
        self._before, self.micro = self.micro, larger

    def _leave_last(self) -> None:
        last = self._lasts[self._climbed - 1]
        if last.leave is not None:
            last.leave()
            self._climbed -= 1
            self._wait = min(2 * self._wait, _LONGEST)
            _log.info("%d calm steps: no longer %s.", self._wait, last.rung.detail)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run should know."""
        return {"micro": self.micro, "wait": self._wait, "climbed": self._climbed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another run stopped."""
        self.micro, self._wait, self.is_calm = state["micro"], state["wait"], False
        while self._climbed < min(state["climbed"], len(self._lasts)):
            self._climb_last()


def _largest(size: int, smallest: int, foresees: Callable[[int], bool]) -> int:
    """The largest size that is foreseen to fit, of this one, its half and so on; this one if none is."""
    smaller = size
    while not foresees(smaller):
        if smaller <= smallest:
            return size
        smaller = max(smallest, smaller // 2)
    return smaller
