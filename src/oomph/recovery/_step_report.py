"""The report of one guarded step, and the error when a step can't be made to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..display import HtmlRepr
from ..errors import RetriesExhausted
from ._caught_oom import CaughtOom

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Fallback:
    """A change that makes a step need less memory.

    Attributes:
        name: "free_cache", "micro_batch", "collect_garbage", "checkpoint", "precision", "size"; for an optimizer
            update "host_backup", "single_tensor".
        detail: the change in words, such as "micro-batches of 16".
        cost: its price.
    """

    name: str
    detail: str
    cost: str

    def __str__(self) -> str:
        return f"{self.detail} ({self.cost})"


@dataclass(frozen=True)
class StepReport(HtmlRepr):
    """The result of one guarded step.

    Attributes:
        micro_batches: the number of micro-batches that the batch was split into in the end.
        retries: how often the step, or its optimizer update, was retried.
        fallbacks: the changes made in this step so that it fits, in order.
        loss: the loss of the whole batch, detached, on the device; reading it waits for the device.
        peak_bytes: peak memory, where it can be read without waiting; on the CPU the RSS of the process.
        seconds: duration of the call; a GPU may still be working.
        skipped: True if the GradScaler skipped the update; None where only the device knows.
        updated: True if the step ended with an optimizer update.
        grad_norm: norm of all gradients before they were clipped, on the device; None without an update.
        learning_rates: the learning rate of each param group in this update.
        metrics: the sums of `metrics=` over the micro-batches.
    """

    micro_batches: int
    retries: int
    fallbacks: tuple[Fallback, ...]
    loss: Tensor
    peak_bytes: int | None
    seconds: float
    skipped: bool | None
    updated: bool
    grad_norm: Tensor | float | None = None
    learning_rates: tuple[Tensor | float, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)


def record_fields(report: StepReport, step: int) -> dict[str, Any]:
    """Return a step's fields for the Record, without those that only the device may know yet."""
    lr = report.learning_rates[0] if report.learning_rates else None
    return {
        "step": step,
        "seconds": report.seconds,
        "micro_batches": report.micro_batches,
        "retries": report.retries,
        "peak": report.peak_bytes,
        "skipped": report.skipped,
        "fallbacks": [str(fallback) for fallback in report.fallbacks] or None,
        "lr": lr if isinstance(lr, float) else None,  # reading a tensor may wait for the device
    }


def retries_exhausted(
    oom: CaughtOom, checkpoint: str | None, notes: Sequence[str] = (), *, partly_updated: bool
) -> RetriesExhausted:
    """Build the error that ends a run whose step doesn't fit.

    Args:
        oom: the last out-of-memory error.
        checkpoint: where the run was saved; None if it wasn't.
        notes: which fallbacks were not possible, and why.
        partly_updated: weights without a backup may have been updated when memory ran out.
    """
    fixes = (
        ["look at the other rank's output"]
        if oom.finding is None
        else [text for advice in oom.finding.advice if "oomph.guard" not in (text := " ".join(advice.lines))][:2]
    )
    fix = "; ".join(fixes).rstrip(".") or "use a smaller model, smaller inputs or a larger device"
    saved = f"the run was saved to {checkpoint}" if checkpoint else "this process did not save the run"
    if partly_updated:
        saved = "the weights may be partly updated, so resume from the last checkpoint"
    details = "; ".join([oom.message, *filter(None, notes)])
    why = f"the step doesn't fit in memory after every fallback ({details}); {saved}"
    return RetriesExhausted(why, fix, checkpoint)
