"""What one guarded step did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Rung:
    """One thing that was done so that a step fits, or undone because it would fit without.

    Attributes:
        name: "free", "pieces", "checkpoint", "precision", "size", or, for the update, "host copy", "one by one".
        detail: what was done.
        cost: what that costs.
    """

    name: str
    detail: str
    cost: str

    def __str__(self) -> str:
        return f"{self.detail} ({self.cost})"


@dataclass(frozen=True)
class StepReport:
    """What one guarded step did.

    Attributes:
        pieces: into how many pieces the batch was split in the end.
        retries: how often the step, or its update, was tried again.
        rungs: what was done in this step so that it fits, in order.
        loss: the loss of the whole batch, detached, on the device: reading it waits for the device.
        bytes: the most that was in use, where that can be told without waiting; on the CPU the process's RAM.
        seconds: how long the call took; on a GPU the device may still be at work.
        skipped: whether the scaler skipped the update; None where only the device knows.
        updated: whether the optimizer was to make its step.
    """

    pieces: int
    retries: int
    rungs: tuple[Rung, ...]
    loss: Tensor
    bytes: int | None
    seconds: float
    skipped: bool | None
    updated: bool
