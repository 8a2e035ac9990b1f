"""Checks that classes, images and world size match the checkpoint when a run is resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import UsageError

_MAX_NAMES = 80  # characters of class names in a message


@dataclass(frozen=True)
class ResumeCheck:
    """Properties of a run that its config doesn't contain and that must not change.

    Attributes:
        names: class names.
        images: number of usable training images.
        world_size: number of ranks.
        data_order: the loader's fingerprint of files and order.
    """

    names: tuple[str, ...]
    images: int
    world_size: int
    data_order: str

    def state(self) -> dict[str, Any]:
        """Return plain values for the checkpoint."""
        return {**dataclasses.asdict(self), "names": list(self.names)}

    def verify(self, saved: Mapping[str, Any]) -> None:
        """Compare with the `state` in a checkpoint.

        Raises:
            UsageError: something has changed.
        """
        if list(self.names) != list(saved["names"]):
            now, then = (f"{len(names)} ({', '.join(names)[:_MAX_NAMES]})" for names in (self.names, saved["names"]))
            raise UsageError(
                f"the classes have changed since the run was started: {now}, before {then}",
                "restore them, or start a new run",
            )
        if self.world_size != saved["world_size"]:
            raise UsageError(
                f"the run was started with {saved['world_size']} ranks and is resumed with {self.world_size}",
                f"resume it with torchrun --nproc-per-node {saved['world_size']}",
            )
        if self.data_order != saved["data_order"]:
            same_count = self.images == saved["images"]
            change = "other files" if same_count else f"{self.images} now, {saved['images']} before"
            raise UsageError(
                f"the training images have changed since the run was started ({change})",
                "restore them, or start a new run with --weights and this run's last.pt",
            )
