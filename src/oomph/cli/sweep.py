"""`oomph sweep`."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import MissingFile, UsageError, quote
from ..units import format_time
from ._options import Json
from ._runs import SWEEPS, create_run_dir, find_sweep, not_writable
from ._signals import exit_on_sigterm
from ._sweep import Flags, SweepContext, SweepRequest

if TYPE_CHECKING:
    from ..report import SweepProgress
    from ..sweeps import ResultsFile

# Flags that may change when a sweep is resumed: they don't affect what a cell computes.
_CHANGEABLE = ("--budget", "--timeout", "--jobs", "--max-time", "--on")


def sweep(
    data: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="YAML", help="The dataset that detectors are trained on.", show_default="a generated one"),
    ] = None,
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
    cfg: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="LIST", help="Networks: n,s,mobilenet.", show_default="s"),
    ] = None,
    weights: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="LIST", help="Files of initial weights.", show_default="fresh ones"),
    ] = None,
    epochs: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NUMBER", help="Number of epochs.", show_default="100; 24 for the generated dataset"),
    ] = None,
    settings: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--settings", "--hyp", metavar="YAML", help="All other settings, as of `oomph train`.", show_default=False
        ),
    ] = None,
    axes: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--set",
            metavar="NAME=LIST",
            help="Any other axis: a setting of `oomph train`, or a placeholder. Repeatable.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NUMBER", help="Number of seeds per cell.", show_default="1"),
    ] = None,
    command: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="TEXT",
            help="Sweep another program instead: 'python train.py --batch {batch}'.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="REGEX",
            help="Number in its output: 'mAP50: ([0-9.]+)'. Repeatable; cells are compared by the first.",
            show_default=False,
        ),
    ] = None,
    minimize: Annotated[bool, typer.Option("--minimize", help="Its metric is better if smaller, as a loss.")] = False,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="SIZES", help="Memory of a cell: gpu=8GiB,ram=16GiB.", show_default="no limit"),
    ] = None,
    timeout: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="TIME", help="Time of a cell: 90s, 10m, 2h.", show_default="no limit"),
    ] = None,
    max_time: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="TIME", help="Time of the whole sweep: the cells worth most run first.", show_default="no limit"
        ),
    ] = None,
    jobs: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NUMBER", help="Cells that run side by side if they fit together.", show_default="1"),
    ] = None,
    on: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="local|ray[:SHARE]",
            help="Run on a Ray cluster, with a GPU, or a share of one, per cell.",
            show_default="local",
        ),
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

    Trains a detector, or runs a command, once per combination of values, each in a process of its own with its own
    limits. A cell that fails, hangs or is killed becomes a row with its explanation.
    """
    texts = {
        "--data": data,
        "--batch": batch,
        "--img": img,
        "--cfg": cfg,
        "--weights": weights,
        "--epochs": epochs,
        "--settings": settings,
        "--set": axes or None,
        "--seeds": seeds,
        "--command": command,
        "--metric": metric or None,
        "--minimize": "" if minimize else None,
        "--budget": budget,
        "--timeout": timeout,
        "--max-time": max_time,
        "--jobs": jobs,
        "--on": on,
    }
    flags = {
        flag: (text,) if isinstance(text, str) else tuple(text) for flag, text in texts.items() if text is not None
    }
    with exit_on_sigterm():
        if resume is None:
            _start(flags, name or "sweep", as_json=json)
        else:
            _resume(flags, resume, name, as_json=json)


def _start(flags: Flags, name: str, *, as_json: bool) -> None:
    from ..sweeps import ResultsFile, SweepHeader, lock_sweep  # noqa: PLC0415

    request = SweepRequest.parse(flags, Path.cwd())
    with create_run_dir(name, SWEEPS) as folder, _report_disk_errors(folder), lock_sweep(folder):
        results = ResultsFile.create(folder, SweepHeader(request.grid, flags, str(Path.cwd())))
        try:
            _run(request, results, as_json=as_json)
        except UsageError:
            if not results.results:
                results.remove()  # nothing has run: the folder is not worth resuming
            raise


def _resume(flags: Flags, sweep_name: str, name: str | None, *, as_json: bool) -> None:
    from ..sweeps import RESULTS_FILE, ResultsFile, lock_sweep  # noqa: PLC0415

    folder = find_sweep(sweep_name, name, RESULTS_FILE)
    with _report_disk_errors(folder), lock_sweep(folder):
        results = ResultsFile(folder)
        if "job" in results.header.flags:
            raise UsageError(
                f"the sweep in {folder} was started in Python", "resume it there, with oomph.sweep(…, resume=True)"
            )
        cwd = Path(results.header.cwd)
        if not cwd.is_dir():
            raise MissingFile(f"the folder {quote(str(cwd))} that the cells run in does not exist", "start a new sweep")
        request = SweepRequest.parse(_resumed_flags(results.header.flags, flags, folder), cwd)
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


def _run(request: SweepRequest, results: ResultsFile, *, as_json: bool) -> None:
    from ..files import write_atomically  # noqa: PLC0415
    from ..report import SweepProgress, SweepReport, emit, save_sweep_plot  # noqa: PLC0415

    with (
        _print_resume_hint(results.folder),
        SweepProgress(len(request.grid.cells()), done=len(results.results), quiet=as_json) as progress,
    ):
        _run_cells(request, results, progress)
    report = SweepReport(request.grid, results.results, request.kind.goal, str(results.folder))
    write_atomically(results.folder / "results.csv", lambda file: file.write(report.csv().encode()))
    save_sweep_plot(report, results.folder / "plot.png")
    emit(report, as_json=as_json)
    if not any(result.is_done for result in results.results):
        raise typer.Exit(1)


def _run_cells(request: SweepRequest, results: ResultsFile, progress: SweepProgress) -> None:
    """Run the cells that have no result yet."""
    from ..sweeps import CellResult, TimeBudget, read_free_memory, run_cells, run_cells_on_ray  # noqa: PLC0415

    finished = {result.cell for result in results.results}
    cells = [cell for cell in request.grid.cells() if cell not in finished]
    if finished:
        total = len(finished) + len(cells)
        progress.log(f"resuming {results.folder}: {len(finished)} of {total} cells have results")

    def on_result(result: CellResult) -> None:
        results.append(result)
        progress.on_result(result)

    context = SweepContext(request, results.folder, Path(results.header.cwd), progress, on_result)
    tasks = request.kind.tasks(cells, context)
    time_budget = TimeBudget(request.max_seconds, tasks)
    if time_budget.total:
        progress.log(f"estimated time of all cells: {format_time(time_budget.total)}")

    def on_run(result: CellResult) -> None:
        on_result(result)
        time_budget.record(result)

    if request.ray is not None:
        in_time = [task for task in time_budget.tasks if time_budget.allows(task)]
        run_cells_on_ray(
            in_time, results.folder, on_run, jobs=request.jobs, gpus=request.ray.gpus, on_progress=progress.on_progress
        )
        return
    run_cells(
        time_budget.tasks,
        results.folder,
        on_run,
        jobs=request.jobs or 1,
        admit=read_free_memory().admits if request.jobs != 1 else lambda *_: True,
        worth_starting=time_budget.allows,
        on_progress=progress.on_progress,
    )


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
