"""What may be changed when smaller pieces alone don't fit, exact moves first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..errors import UsageError
from ..settings import Settings

ALLOWED = ("precision", "size")  # what changes results, and so needs the user's yes


@dataclass(frozen=True)
class AllowedChanges:
    """What may be changed beside the pieces.

    Attributes:
        checkpointing: whether blocks may run again in the backward pass, which changes no result.
        precision: a lower one that could be computed in; None if there is none.
        sides: smaller images that could be trained on, the largest first.
        allowed: which of "precision" and "size" the user has said yes to.
    """

    checkpointing: bool = False
    precision: str | None = None
    sides: tuple[int, ...] = ()
    allowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = next((one for one in self.allowed if one not in ALLOWED), None)
        if unknown is not None:
            raise UsageError(
                f"{unknown!r} can't be allowed", f"it must be {' or '.join(ALLOWED)}, or both with a comma"
            )

    def candidates(self, asked: Settings) -> Iterator[Settings]:
        """The settings with more and more changes, without smaller images."""
        exact = [asked, replace(asked, checkpointing="blocks")] if self.checkpointing else [asked]
        yield from exact
        if "precision" in self.allowed and self.precision is not None:
            yield from (replace(one, precision=self.precision) for one in exact)

    def smaller_images(self, asked: Settings) -> list[Settings]:
        """The same with smaller and smaller images, everything else changed that may be."""
        if "size" not in self.allowed:
            return []
        *_, last = self.candidates(asked)
        return [replace(last, size=side) for side in self.sides]

    def with_more(self) -> Iterator[AllowedChanges]:
        """This leeway with one more yes, then with more of them."""
        missing = [one for one in ALLOWED if one not in self.allowed]
        for count in range(1, len(missing) + 1):
            for more in itertools.combinations(missing, count):
                yield replace(self, allowed=(*self.allowed, *more))


def read_allowed(text: str) -> tuple[str, ...]:
    """What a text such as "precision,size" says yes to.

    Raises:
        UsageError: it names something else.
    """
    return AllowedChanges(allowed=tuple(one.strip() for one in text.split(",") if one.strip())).allowed
