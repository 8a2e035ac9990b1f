"""The files of a training run: its result, and how much of it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .. import document
from ..errors import CannotFit, MissingFile, OomphError
from ._grid import Cell
from ._result import CellResult, Status
from .supervisor import LOG_FILE, CellExplanation, CellOutcome, Limits, explain_cell, last_line

RUNS_FOLDER = "runs"
RESULT_FILE = "cell.json"
_PROGRESS_FILE = "progress"
_PREFIX = "oomph: "  # of an error
_KIND, _VERSION = "sweep result", 1


@dataclass(frozen=True)
class RunResult:
    """Measurements of a training run.

    Attributes:
        metrics: metrics by name.
        predicted: predicted peak: allocated by torch on a GPU, RSS of the process on the CPU.
        measured: measured peak of the same kind.
        uses_gpu: True if it ran on a GPU.
        extra: other numbers by name.
    """

    metrics: Mapping[str, float]
    predicted: int
    measured: int
    uses_gpu: bool
    extra: Mapping[str, float]

    def save(self, run_dir: Path) -> None:
        """Write the result into the folder of its run; it marks the run as complete."""
        from ..files import write_atomically  # noqa: PLC0415  only the process of a run needs it

        content = document.dumps(document.write(_KIND, _VERSION, self)).encode()
        write_atomically(run_dir / RESULT_FILE, lambda file: file.write(content))

    @classmethod
    def load(cls, run_dir: Path) -> RunResult | None:
        """Return the result of a run; None if it is not complete."""
        try:
            return document.read(_KIND, _VERSION, cls, document.load(run_dir / RESULT_FILE))
        except MissingFile:
            return None


@dataclass(frozen=True)
class FinishedRun:
    """Makes the result of a cell from the files of its run."""

    run_dir: str
    limits: Limits

    def __call__(self, cell: Cell, folder: Path, outcome: CellOutcome) -> CellResult:
        """Return the result with the metrics, or with the reason why there are none."""
        result = RunResult.load(Path(self.run_dir))
        explanation = CellExplanation(Status.DONE) if result is not None else self._explain(folder, outcome)
        row = CellResult(
            cell,
            explanation.status,
            host_peak=outcome.host_peak,
            gpu_peak=outcome.gpu_peak,
            seconds=outcome.seconds,
            why=explanation.why,
            fix=explanation.fix,
            exit_code=outcome.exit_code,
        )
        if result is None:
            return row
        peaks = {"gpu_peak": result.measured} if result.uses_gpu else {"host_peak": result.measured, "gpu_peak": None}
        return replace(row, metrics=result.metrics, predicted=result.predicted, extra=result.extra, **peaks)

    def _explain(self, folder: Path, outcome: CellOutcome) -> CellExplanation:
        line = last_line(folder / LOG_FILE)
        if outcome.exit_code and line.startswith(_PREFIX):
            why, _, fix = line.removeprefix(_PREFIX).partition("; ")
            status = Status.OUT_OF_MEMORY if outcome.exit_code == CannotFit.exit_code else Status.FAILED
            return CellExplanation(status, why, (fix,))
        explanation = explain_cell(folder, outcome, self.limits)
        if explanation.status is Status.DONE:  # the user's code called sys.exit(0)
            return CellExplanation(Status.FAILED, "it ended without a result", (f"See {folder / LOG_FILE}.",))
        return explanation


def error_line(error: OomphError) -> str:
    """Return the last line of the output of a run that failed, from which the row of its cell is made."""
    return f"{_PREFIX}{error}"


def write_progress(folder: Path, fraction: float) -> None:
    """Write how much of a cell is done into its folder."""
    (folder / _PROGRESS_FILE).write_text(f"{fraction:.4f}", encoding="ascii")


def read_progress(folder: Path) -> float | None:
    """Return how much of a cell is done, from 0 to 1; None if it is unknown."""
    try:
        return float((folder / _PROGRESS_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):  # not written yet, or being written
        return None
