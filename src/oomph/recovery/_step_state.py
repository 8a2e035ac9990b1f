"""The progress of one step."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..batch import write_versions
from ..errors import UsageError
from ._step_report import Fallback, StepReport

if TYPE_CHECKING:
    from torch import Tensor

    from ._optimizer_step import OptimizerStep, UpdateResult
    from .splitting import LossAccumulator, Objective, SplitRule


@dataclass(frozen=True)
class StepMode:
    """What follows the gradients of a step.

    Attributes:
        updates: the optimizers step.
        syncs: the gradients are averaged over the ranks.
        scale: factor of the gradients.
        adds_grads: the gradients are added to those that are there, as `backward()` does; otherwise the batches since
            the last update count as one batch.
    """

    updates: bool
    syncs: bool
    scale: float = 1.0
    adds_grads: bool = False


class StepState:
    """The progress of one step."""

    objective: Objective
    rule: SplitRule

    def __init__(self, batch: Any, samples: int, mode: StepMode) -> None:
        if samples == 0:
            raise UsageError("the batch has no samples", "skip empty batches")
        self.started_at = time.perf_counter()
        self.batch, self.samples, self.batch_versions = batch, samples, write_versions(batch)
        self.mode = mode
        self.micro_batches = 1
        self.is_part = False  # accumulated with other batches, which count as one
        self.largest_batch = samples  # over all ranks
        self.signum: int | None = None  # of a signal that asked any rank to stop
        self.retries = 0
        self.fallbacks: tuple[Fallback, ...] = ()
        self.losses: LossAccumulator | None = None
        self.loss: Tensor | None = None
        self.metrics: dict[str, Any] = {}

    @property
    def is_split(self) -> bool:
        """True if the batch runs in several micro-batches."""
        return self.micro_batches > 1

    def report(self, result: UpdateResult, peak_bytes: int | None, optimizer_step: OptimizerStep) -> StepReport:
        """Return the report of the step after it succeeded."""
        assert self.loss is not None  # noqa: S101  it is set by a successful attempt
        updated = self.mode.updates
        return StepReport(
            micro_batches=self.micro_batches,
            retries=self.retries,
            fallbacks=self.fallbacks,
            loss=self.loss,
            peak_bytes=peak_bytes,
            seconds=time.perf_counter() - self.started_at,
            skipped=result.skipped if updated else False,
            updated=updated,
            grad_norm=optimizer_step.grad_norm if updated else None,
            learning_rates=optimizer_step.learning_rates if updated else (),
            metrics=self.metrics,
        )
