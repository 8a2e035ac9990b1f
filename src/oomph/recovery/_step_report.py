"""What one guarded step did, or why it could not be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import RetriesExhausted
from ._fault import Fault

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Fallback:
    """One thing that was done so that a step fits, or undone because it would fit without.

    Attributes:
        name: "free", "pieces", "collect", "checkpoint", "precision", "size"; of an update "host copy", "one by one".
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
        micro_batches: into how many micro-batches the batch was split in the end.
        retries: how often the step, or its update, was tried again.
        fallbacks: what was done in this step so that it fits, in order.
        loss: the loss of the whole batch, detached, on the device: reading it waits for the device.
        peak_bytes: the most that was in use, where that can be told without waiting; on the CPU the process's RAM.
        seconds: how long the call took; on a GPU the device may still be at work.
        skipped: whether the scaler skipped the update; None where only the device knows.
        updated: whether the optimizer was to make its step.
    """

    micro_batches: int
    retries: int
    fallbacks: tuple[Fallback, ...]
    loss: Tensor
    peak_bytes: int | None
    seconds: float
    skipped: bool | None
    updated: bool


def step_fields(report: StepReport, number: int) -> dict[str, Any]:
    """A step as the Record has it, but for what only the device may know yet."""
    return {
        "step": number,
        "seconds": report.seconds,
        "micro_batches": report.micro_batches,
        "retries": report.retries,
        "peak": report.peak_bytes,
        "skipped": report.skipped,
    }


def out_of_rungs(fault: Fault, place: str | None, *, half: bool) -> RetriesExhausted:
    """The end of a run: what ran short, where the run was saved, what to do.

    Args:
        fault: what ran short.
        place: where the run was saved.
        half: whether an update of which there is no copy was made, at least in part, and what follows it was not.
    """
    fix = "; ".join(fault.finding.fix[:2]).rstrip(".") if fault.finding is not None else "look at the other rank"
    saved = f"the run was saved to {place}" if place else "the run was not saved"
    if half:
        saved = "weights were updated already, and what follows an update was not: resume from the last checkpoint"
    return RetriesExhausted(
        f"a step doesn't fit into memory, whatever the guard does ({fault.words}); {saved}", fix, place
    )
