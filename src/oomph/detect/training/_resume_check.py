"""What must be as it was when a run is resumed, or a checkpoint would be put into something else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import UsageError


@dataclass(frozen=True)
class Circumstances:
    """What a run was begun with, as far as its order form doesn't say it.

    Attributes:
        names: of the classes.
        images: to train on, that can be used.
        ranks: processes that train together.
        order: what the loader takes for the order of the images, files and all.
    """

    names: tuple[str, ...]
    images: int
    ranks: int
    order: str

    def facts(self) -> dict[str, Any]:
        """As plain values, to be saved."""
        return {**dataclasses.asdict(self), "names": list(self.names)}

    def check(self, before: Mapping[str, Any]) -> None:
        """Compare with what `facts` said when the run was saved.

        Raises:
            UsageError: something is not as it was.
        """
        if list(self.names) != list(before["names"]):
            now, then = (f"{len(names)} ({', '.join(names)[:80]})" for names in (self.names, before["names"]))
            raise UsageError(
                f"the data has other classes than the run was begun with: {now} and not {then}",
                "write them as they were, or begin a new run",
            )
        if self.ranks != before["ranks"]:
            raise UsageError(
                f"the run was begun with {before['ranks']} ranks, and there are {self.ranks}",
                f"resume it with torchrun --nproc-per-node {before['ranks']}",
            )
        if self.order != before["order"]:
            counts = f"{self.images} now, {before['images']} then" if self.images != before["images"] else "other files"
            raise UsageError(
                f"the training images are not those that the run was begun with ({counts})",
                "put them back as they were, or begin a new run with --weights and its last.pt",
            )
