"""`oomph sweep`."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import MissingFile, UsageError, quote
from ._options import Json
from ._runs import SWEEPS, create_run_dir, find_sweep, not_writable
from ._signals import exit_on_sigterm
from ._sweep_flags import Flags, parse_count, parse_grid, parse_limits

if TYPE_CHECKING:
    from ..sweeps import Cell, CellTask, CommandTemplate, Goal, Grid, Limits, Metric, ResultsFile

# Flags that may change when a sweep is resumed: they don't affect what a cell computes.
_CHANGEABLE = ("--budget", "--timeout", "--jobs")


def sweep(
    command: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="TEXT", help="Command of a cell: 'python train.py --batch {batch}'.", show_default=False),
    ] = None,
    metric: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="REGEX",
            help="Number in its output: 'mAP50: ([0-9.]+)'. Repeatable; cells are compared by the first.",
            show_default=False,
        ),
    ] = None,
    minimize: Annotated[bool, typer.Option("--minimize", help="Smaller is better, as for a loss.")] = False,
    batch: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="LIST", help="Batch sizes: 16,32.", show_default=False),
    ] = None,
    img: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--img", "--imgsz", "--img-size", metavar="LIST", help="Image sizes: 320,640.", show_default=False
        ),
    ] = None,
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--set", metavar="NAME=LIST", help="Any other axis: lr=0.1,0.01. Repeatable.", show_default=False),
    ] = None,
    seeds: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NUMBER", help="Number of seeds per cell.", show_default="1"),
    ] = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="SIZES", help="Memory of a cell: gpu=8GiB,ram=16GiB.", show_default="no limit"),
    ] = None,
    timeout: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="TIME", help="Time of a cell: 90s, 10m, 2h.", show_default="no limit"),
    ] = None,
    jobs: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NUMBER", help="Cells that run side by side if their budgets fit.", show_default="1"),
    ] = None,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Name of the sweep: a folder in runs/sweep.", show_default="sweep"),
    ] = None,
    resume: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--resume",
            metavar="[NAME]",
            help="Run what is missing in the newest sweep, or in that of a name or folder. Needs no other flag.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure what batch size, image size and other settings cost in memory, time and accuracy.

    Runs a command once per combination of values, each in a process of its own with its own limits. A cell that fails,
    hangs or is killed becomes a row with its explanation.
    """
    texts = {
        "--command": command,
        "--metric": metric or None,
        "--minimize": "" if minimize else None,
        "--batch": batch,
        "--img": img,
        "--set": settings or None,
        "--seeds": seeds,
        "--budget": budget,
        "--timeout": timeout,
        "--jobs": jobs,
    }
    flags = {
        flag: (text,) if isinstance(text, str) else tuple(text) for flag, text in texts.items() if text is not None
    }
    with exit_on_sigterm():
        if resume is None:
            _start(flags, name or "sweep", as_json=json)
        else:
            _resume(flags, resume, name, as_json=json)


@dataclass(frozen=True)
class _Request:
    """The parsed flags: what all kinds of sweeps share.

    Attributes:
        flags: The flags with their texts.
        grid: The cells.
        limits: The limits of each cell.
        jobs: The number of cells that may run side by side.
        goal: What cells are compared by.
    """

    flags: Flags
    grid: Grid
    limits: Limits
    jobs: int
    goal: Goal

    @classmethod
    def parse(cls, flags: Flags) -> _Request:
        from ..sweeps import Goal  # noqa: PLC0415

        if "--command" not in flags:
            raise UsageError(
                "nothing is swept", "add --command 'python train.py --batch {batch}', or --resume for an earlier sweep"
            )
        grid = parse_grid(flags)
        _template(flags).check(grid)
        goal = Goal(_metrics(flags)[0].name, minimize="--minimize" in flags)
        return cls(flags, grid, parse_limits(flags), parse_count(flags, "--jobs"), goal)


def _command_tasks(request: _Request, cells: Sequence[Cell], cwd: Path) -> tuple[CellTask, ...]:
    """Return the tasks of a sweep of a foreign command."""
    from ..sweeps import command_tasks  # noqa: PLC0415

    flags = request.flags
    return command_tasks(_template(flags), cells, _metrics(flags), request.limits, cwd=cwd, jobs=request.jobs)


def _template(flags: Flags) -> CommandTemplate:
    from ..sweeps import CommandTemplate  # noqa: PLC0415

    return CommandTemplate(flags["--command"][0])


def _metrics(flags: Flags) -> tuple[Metric, ...]:
    from ..sweeps import parse_metrics  # noqa: PLC0415

    return parse_metrics(flags.get("--metric", ()))


def _start(flags: Flags, name: str, *, as_json: bool) -> None:
    from ..sweeps import ResultsFile, SweepHeader, lock_sweep  # noqa: PLC0415

    request = _Request.parse(flags)
    with create_run_dir(name, SWEEPS) as folder, _report_disk_errors(folder), lock_sweep(folder):
        results = ResultsFile.create(folder, SweepHeader(request.grid, flags, str(Path.cwd())))
        _run(request, results, as_json=as_json)


def _resume(flags: Flags, sweep_name: str, name: str | None, *, as_json: bool) -> None:
    from ..sweeps import RESULTS_FILE, ResultsFile, lock_sweep  # noqa: PLC0415

    folder = find_sweep(sweep_name, name, RESULTS_FILE)
    with _report_disk_errors(folder), lock_sweep(folder):
        results = ResultsFile(folder)
        request = _Request.parse(_resumed_flags(results.header.flags, flags, folder))
        _run(request, results, as_json=as_json)


def _resumed_flags(saved: Flags, given: Flags, folder: Path) -> Flags:
    """Return the flags of a resumed sweep.

    Raises:
        UsageError: a flag differs from the sweep's and would change its results.
    """
    for flag, texts in given.items():
        if flag not in _CHANGEABLE and saved.get(flag) != texts:
            before = " ".join(map(quote, saved[flag])) if flag in saved else "not given"
            raise UsageError(
                f"{flag} is {' '.join(map(quote, texts))}, but in the sweep in {folder} it is {before}",
                "remove it, or start a new sweep",
            )
    return {**saved, **given}


def _run(request: _Request, results: ResultsFile, *, as_json: bool) -> None:
    from ..files import write_atomically  # noqa: PLC0415
    from ..report import SweepProgress, SweepReport, emit  # noqa: PLC0415
    from ..sweeps import CellResult, read_free_memory, run_cells  # noqa: PLC0415

    finished = {result.cell for result in results.results}
    cells = [cell for cell in request.grid.cells() if cell not in finished]
    cwd = Path(results.header.cwd)
    if not cwd.is_dir():
        raise MissingFile(f"the folder {quote(str(cwd))} that the cells run in does not exist", "start a new sweep")
    tasks = _command_tasks(request, cells, cwd)
    total = len(request.grid.cells())
    with (
        _print_resume_hint(results.folder),
        SweepProgress(total, done=len(finished), quiet=as_json) as progress,
    ):
        if finished:
            progress.log(f"resuming {results.folder}: {len(finished)} of {total} cells have results")

        def on_result(result: CellResult) -> None:
            results.append(result)
            progress.on_result(result)

        admit = read_free_memory().admits if request.jobs > 1 else lambda *_: True
        run_cells(tasks, results.folder, on_result, jobs=request.jobs, admit=admit, on_progress=progress.on_progress)
    report = SweepReport(request.grid, results.results, request.goal, str(results.folder))
    write_atomically(results.folder / "results.csv", lambda file: file.write(report.csv().encode()))
    emit(report, as_json=as_json)
    if not any(result.is_done for result in results.results):
        raise typer.Exit(1)


@contextlib.contextmanager
def _report_disk_errors(folder: Path) -> Iterator[None]:
    """Turn an error of writing into the sweep's folder into one sentence."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the output is gone
    except OSError as error:
        raise not_writable(folder, error) from None


@contextlib.contextmanager
def _print_resume_hint(folder: Path) -> Iterator[None]:
    """Print the command that continues a sweep when Ctrl-C or SIGTERM stops it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        typer.echo(f"stopped; continue with: oomph sweep --resume {shlex.quote(str(folder))}", err=True)
        raise
