"""Changes that are allowed if smaller micro-batches alone do not fit; changes that keep results exact come first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..errors import UsageError, quote
from ..settings import Settings

PERMISSIONS = ("precision", "size")  # changes that affect results need the user's permission


@dataclass(frozen=True)
class AllowedChanges:
    """Changes that are allowed in addition to smaller micro-batches.

    Attributes:
        checkpointing: True to allow recomputing blocks in the backward pass, which keeps results exact.
        precision: a lower precision to compute in; None if there is none.
        image_sizes: smaller image sides to train with, largest first.
        allowed: the user's permissions: "precision", "size" or both.
    """

    checkpointing: bool = False
    precision: str | None = None
    image_sizes: tuple[int, ...] = ()
    allowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = next((name for name in self.allowed if name not in PERMISSIONS), None)
        if unknown is not None:
            raise UsageError(
                f"{quote(unknown)} can't be allowed", f"use {' or '.join(PERMISSIONS)}, or both separated by a comma"
            )

    def candidates(self, requested: Settings) -> Iterator[Settings]:
        """Yield the requested settings with more and more changes, without smaller images."""
        exact = [requested, replace(requested, checkpointing="blocks")] if self.checkpointing else [requested]
        yield from exact
        if "precision" in self.allowed and self.precision is not None:
            yield from (replace(settings, precision=self.precision) for settings in exact)

    def smaller_images(self, requested: Settings) -> list[Settings]:
        """Return settings with smaller and smaller images and all other allowed changes."""
        if "size" not in self.allowed:
            return []
        *_, last = self.candidates(requested)
        return [replace(last, size=size) for size in self.image_sizes]

    def with_more(self) -> Iterator[AllowedChanges]:
        """Yield these changes with one more permission, then with more of them."""
        missing = [name for name in PERMISSIONS if name not in self.allowed]
        for count in range(1, len(missing) + 1):
            for added in itertools.combinations(missing, count):
                yield replace(self, allowed=(*self.allowed, *added))


def read_allowed(text: str) -> tuple[str, ...]:
    """Parse permissions such as "precision,size".

    Raises:
        UsageError: the text names an unknown permission.
    """
    return AllowedChanges(allowed=tuple(name.strip() for name in text.split(",") if name.strip())).allowed
