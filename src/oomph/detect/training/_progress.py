"""Progress callbacks of a training run, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ...planner import Plan


@dataclass(frozen=True)
class StepStats:
    """State of the run after an iteration.

    Attributes:
        epoch, epochs: current epoch, from 1, and their number.
        iteration, iterations: iterations done in this epoch, and their number.
        loss: mean loss of the epoch so far.
        images_per_second: speed of the epoch so far, over all ranks.
        micro_batches: number of micro-batches of the step.
        peak_bytes: peak memory of the step, if the guard knows it.
        rss_bytes: memory of this process.
        seconds_left: estimated time to the end of the run.
    """

    epoch: int
    epochs: int
    iteration: int
    iterations: int
    loss: float
    images_per_second: float
    micro_batches: int
    peak_bytes: int | None
    rss_bytes: int
    seconds_left: float


class ProgressCallback(Protocol):
    """Progress callbacks; the CLI renders them."""

    def log(self, message: str) -> None:
        """Receive a sentence about the data or a decision."""
        ...

    def on_progress(self, task: str, done: int, total: int | None) -> None:
        """Receive the progress of a task before training, such as reading image headers."""
        ...

    def on_plan(self, plan: Plan) -> None:
        """Receive the memory plan."""
        ...

    def on_step(self, stats: StepStats) -> None:
        """Receive the state after an iteration."""
        ...

    def on_epoch_end(self, row: dict[str, Any]) -> None:
        """Receive the row of results.csv of a completed epoch."""
        ...


class NoProgress:
    """Progress callbacks that report nothing."""

    def log(self, message: str) -> None:
        """Do nothing."""

    def on_progress(self, task: str, done: int, total: int | None) -> None:
        """Do nothing."""

    def on_plan(self, plan: Plan) -> None:
        """Do nothing."""

    def on_step(self, stats: StepStats) -> None:
        """Do nothing."""

    def on_epoch_end(self, row: dict[str, Any]) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class TrainResult:
    """Result of a training run.

    Attributes:
        run_dir: folder of the results.
        epochs: number of trained epochs.
        best: the best row of results.csv; None if nothing was scored.
        plan: the memory plan.
        measured: peak memory of the device, or of the process on the CPU.
        predicted: prediction of it.
        retries: number of retried steps.
        saved_epoch: the epoch in best.pt; None if there is no such file.
    """

    run_dir: str
    epochs: int
    best: dict[str, Any] | None
    plan: Plan
    measured: int
    predicted: int
    retries: int
    saved_epoch: int | None = None
