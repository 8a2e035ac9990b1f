"""The two kinds of sweeps: of a foreign command, and of detectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...errors import MissingFile, UsageError, quote
from ._flags import Flags, RayShare, parse_count, parse_grid, parse_place, parse_seconds

if TYPE_CHECKING:
    from ...report import SweepProgress
    from ...sweeps import (
        Cell,
        CellRequest,
        CellResult,
        CellTask,
        CommandTemplate,
        DetectorRun,
        Goal,
        Grid,
        Limits,
        Metric,
    )

_COMMAND_FLAGS = ("--metric", "--minimize")
_DETECTOR_FLAGS = ("--data", "--cfg", "--weights", "--epochs", "--settings")
_STRIDE = 32  # image sizes of detectors are multiples of it
_DEMO = Path("runs/demo")  # where `oomph train` writes it, too


@dataclass(frozen=True)
class SweepRequest:
    """The parsed flags.

    Attributes:
        grid: The cells.
        limits: The limits of each cell.
        jobs: The number of cells that may run side by side; None on a Ray cluster without --jobs, for as many as fit.
        max_seconds: The time of the whole sweep; None for any.
        ray: The share of a Ray cluster that a cell gets; None to run on this machine.
        kind: What is swept.
    """

    grid: Grid
    limits: Limits
    jobs: int | None
    max_seconds: float | None
    ray: RayShare | None
    kind: SweepKind

    @classmethod
    def parse(cls, flags: Flags, cwd: Path) -> SweepRequest:
        """Parse the flags of a sweep whose cells run in a folder.

        Raises:
            UsageError: a flag is invalid, or belongs to the other kind of sweep.
        """
        from ...sweeps import parse_limits  # noqa: PLC0415

        is_command = "--command" in flags
        other = _DETECTOR_FLAGS if is_command else _COMMAND_FLAGS
        if misplaced := next((flag for flag in other if flag in flags), None):
            which = "detectors, without --command" if is_command else "a --command"
            fix = "remove one of them" if is_command else "add --command, or remove it"
            raise UsageError(f"{misplaced} is for sweeps of {which}", fix)
        grid = parse_grid(flags)
        limits = parse_limits(flags.get("--budget", (None,))[0], flags.get("--timeout", (None,))[0])
        kind = CommandSweep.of(flags, grid) if is_command else DetectorSweep.of(flags, grid, limits, cwd)
        ray = parse_place(flags)
        jobs = None if ray is not None and "--jobs" not in flags else parse_count(flags, "--jobs")
        return cls(grid, limits, jobs, parse_seconds(flags, "--max-time"), ray, kind)


@dataclass(frozen=True)
class SweepContext:
    """A sweep that is about to run.

    Attributes:
        request: The parsed flags.
        folder: The folder of its files.
        cwd: The folder that its cells run in.
        progress: Shows how far it is.
        on_result: Stores and shows a result.
    """

    request: SweepRequest
    folder: Path
    cwd: Path
    progress: SweepProgress
    on_result: Callable[[CellResult], None]

    def cell_request(self) -> CellRequest:
        """Return what the supervisors of all cells are asked for, without a command."""
        from ...sweeps import CellRequest  # noqa: PLC0415

        return CellRequest((), str(self.cwd), limits=self.request.limits, is_alone=self.request.jobs == 1)


class SweepKind(Protocol):
    """A kind of sweep: makes the tasks of its cells."""

    @property
    def goal(self) -> Goal:
        """The metric that cells are compared by."""

    def tasks(self, cells: Sequence[Cell], context: SweepContext) -> Sequence[CellTask]:
        """Return the cells to run; those that can't run get a result at once."""


@dataclass(frozen=True)
class CommandSweep:
    """A foreign command, with metrics in its output."""

    template: CommandTemplate
    metrics: tuple[Metric, ...]
    goal: Goal

    @classmethod
    def of(cls, flags: Flags, grid: Grid) -> CommandSweep:
        """Return the sweep of --command."""
        from ...sweeps import CommandTemplate, Goal, parse_metrics  # noqa: PLC0415

        template = CommandTemplate(flags["--command"][0])
        template.check(grid)
        metrics = parse_metrics(flags.get("--metric", ()))
        return cls(template, metrics, Goal(metrics[0].name, minimize="--minimize" in flags))

    def tasks(self, cells: Sequence[Cell], context: SweepContext) -> Sequence[CellTask]:
        """Return a task per cell."""
        from ...sweeps import command_tasks  # noqa: PLC0415

        return command_tasks(self.template, cells, self.metrics, context.cell_request())


@dataclass(frozen=True)
class DetectorSweep:
    """Training runs of detectors, predicted before the first one runs."""

    run: DetectorRun
    goal: Goal

    @classmethod
    def of(cls, flags: Flags, grid: Grid, limits: Limits, cwd: Path) -> DetectorSweep:
        """Return the sweep of --data, or of the generated dataset."""
        from ...sweeps import DetectorRun, Goal  # noqa: PLC0415

        axes = dict(grid.axes)
        if not axes and len(grid.seeds) == 1:
            raise UsageError("nothing is swept", "list values, such as --batch 16,32 --img 320,640")
        for size in axes.get("img", ()):
            if int(size) % _STRIDE:
                raise UsageError(
                    f"{size} in --img is no multiple of {_STRIDE}, the stride of the network",
                    f"write {max(round(int(size) / _STRIDE), 1) * _STRIDE}",
                )
        for flag in ("--data", "--settings"):
            _check_file(flag, flags.get(flag, (None,))[0], cwd)
        for file in axes.get("weights", ()):
            _check_file("--weights", str(file), cwd)
        run = DetectorRun(
            data=flags.get("--data", (None,))[0],
            demo=str(_DEMO),
            run_dir="",
            batches=tuple(int(batch) for batch in axes.get("batch", ())),
            epochs=parse_count(flags, "--epochs") if "--epochs" in flags else None,
            settings=flags.get("--settings", (None,))[0],
            gpu_budget=limits.gpu,
            host_budget=limits.host,
        )
        return cls(run, Goal("mAP50"))

    def tasks(self, cells: Sequence[Cell], context: SweepContext) -> Sequence[CellTask]:
        """Predict all cells, show the predictions, and return those that can fit."""
        from ...report import ForecastReport  # noqa: PLC0415
        from ...sweeps import detector_task, forecast_cells, skipped_cell  # noqa: PLC0415

        if not cells:
            return ()
        progress, folder = context.progress, context.folder
        progress.log("predicting all cells")
        forecasts = list(forecast_cells(self.run, cells, folder, context.cwd, progress.log))
        progress.show(ForecastReport(tuple(forecasts), context.request.grid.names))
        for forecast in forecasts:
            if not forecast.fits:
                context.on_result(skipped_cell(forecast))
        request = context.cell_request()
        return [detector_task(self.run, forecast, folder, request) for forecast in forecasts if forecast.fits]


def _check_file(flag: str, path: str | None, cwd: Path) -> None:
    if path is not None and not (cwd / path).is_file():
        raise MissingFile(f"there is no file {quote(path)}, which {flag} names", "check the path")
