"""`oomph.sweep`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import UsageError, quote
from ..files import check_run_name, create_run_dir, not_writable
from ..settings import Size, parse_sample_size
from ._admission import read_free_memory
from ._front import Summary, find_front, summarize
from ._grid import Grid, Value
from ._job import JOB_MARK, JobRun, check_job, job_request, job_task
from ._limits import parse_limits
from ._queue import CellProgress, run_cells
from ._recommendation import Goal, recommend
from ._result import CellResult
from ._results_file import RESULTS_FILE, ResultsFile, SweepHeader, lock_sweep
from .supervisor import Limits

_SWEEPS = Path("runs/sweep")
_SOURCE = "source"  # hash of the files, in the header


@dataclass(frozen=True)
class SweepResult:
    """The rows of a sweep and their comparison.

    Attributes:
        folder: the folder of the sweep's files.
        results: the row of each cell, in the order of the grid.
        minimize: True if a smaller metric is better.
    """

    folder: Path
    results: tuple[CellResult, ...]
    minimize: bool = False

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        """The means over seeds, one for each combination of values with a cell that is done."""
        return summarize(self.results)

    @property
    def metric(self) -> str | None:
        """The name of the metric that cells are compared by, the first one; None if no cell is done."""
        return next((name for summary in self.summaries for name in summary.metrics), None)

    @property
    def front(self) -> tuple[Summary, ...]:
        """The combinations that no other one beats in both metric and memory, from little memory to much."""
        if self.metric is None:
            return ()
        points = find_front(self.summaries, self.metric, "memory", minimize=self.minimize)
        return tuple(point.summary for point in points if point.on_front)

    @property
    def recommendation(self) -> tuple[str, ...]:
        """Sentences that compare the best combination with cheaper ones; empty if no cell is done."""
        return () if self.metric is None else recommend(self.summaries, Goal(self.metric, minimize=self.minimize))


def sweep(  # noqa: PLR0913  options by name
    job: str,
    *,
    metric: str,
    batch: int | Sequence[int],
    steps: int,
    size: int | str | Sequence[Size | str] | None = None,
    seeds: int = 1,
    budget: str | int | None = None,
    timeout: str | float | None = None,
    jobs: int = 1,
    name: str = "sweep",
    minimize: bool = False,
    resume: bool = False,
    on_result: Callable[[CellResult], object] | None = None,
    on_progress: Callable[[CellProgress], None] | None = None,
) -> SweepResult:
    """Measure what batch and size cost in memory, time and accuracy: train a Job once per combination and seed.

    Each cell runs in a process of its own. One that fails, hangs or is killed is a row with its explanation. Rows are
    written as they come, so that Ctrl-C loses only the cells that run.

    Args:
        job: `path/to/file.py:function`, a function that returns an `oomph.Job`.
        metric: `path/to/file.py:function`; `function(model, size)` returns a float or a dict of floats. It is called
            after training, in eval mode and without gradients. Cells are compared by the first number.
        batch: batch sizes.
        steps: optimizer steps of each cell.
        size: sizes that the Job's `batch` and the metric get: numbers, or (height, width) pairs in a list.
        seeds: number of seeds of each combination.
        budget: memory of a cell: "gpu=8GiB,ram=16GiB", one of them, or a size of the GPU (of RAM without one).
        timeout: time of a cell: "90s", "10m", "2h", or seconds.
        jobs: number of cells that may run side by side.
        name: name of the folder in `runs/sweep`; if it exists, the new one gets a number.
        minimize: True if a smaller metric is better, as for a loss.
        resume: True to run only the cells without a row in the newest sweep of that name; a new sweep if there is none.
        on_result: called with each row as it comes.
        on_progress: called for each running cell a few times a second.

    Raises:
        UsageError: an argument is wrong, the Job or the metric can't be loaded, or the sweep to resume is another one.
    """
    _reject_nested()
    _check_reference("job", job)
    _check_reference("metric", metric)
    _check_count("steps", steps)
    _check_count("seeds", seeds)
    _check_count("jobs", jobs)
    check_run_name(name)
    request = _Request(JobRun(job, metric, steps), _grid(batch, size, seeds), parse_limits(budget, timeout), jobs)
    with _open(request, name, resume=resume) as results:
        _run(request, results, on_result or _ignore, on_progress or _ignore)
    return SweepResult(results.folder, results.results, minimize)


def _ignore(event: object) -> None:
    """Do nothing with a row or a reading."""


@dataclass(frozen=True)
class _Request:
    """The parsed arguments of a sweep."""

    run: JobRun
    grid: Grid
    limits: Limits
    jobs: int

    def header(self) -> SweepHeader:
        """Return what a resumed sweep must share."""
        run = self.run
        flags = {"job": (run.job,), "metric": (run.metric,), "steps": (str(run.steps),)}
        return SweepHeader(self.grid, {**flags, _SOURCE: _source_hashes(run.job, run.metric)}, str(Path.cwd()))


def _reject_nested() -> None:
    if os.environ.get(JOB_MARK):
        raise UsageError(
            "oomph.sweep is called when the file of its job is loaded",
            'put the call under `if __name__ == "__main__":`, or into another file',
        )


def _check_reference(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise UsageError(
            f"{name} is {quote(value)}",
            "name a function, path/to/file.py:function: cells run in processes of their own",
        )


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} is {quote(value)}", f"set {name} to a whole number of at least 1")


def _grid(batch: int | Sequence[int], size: int | str | Sequence[Size | str] | None, seeds: int) -> Grid:
    batches = (batch,) if isinstance(batch, int) else tuple(batch)
    if not batches:
        raise UsageError("batch is an empty list", "list at least one batch size, such as (16, 32)")
    for value in batches:
        _check_count("batch", value)
    axes: list[tuple[str, tuple[Value, ...]]] = [("batch", batches)]
    if size is not None:
        sizes = (size,) if isinstance(size, (int, str)) else tuple(size)
        if not sizes:
            raise UsageError("size is an empty list", "list at least one size, such as (224, 320), or omit it")
        axes.append(("size", tuple(map(_size_value, sizes))))
    return Grid(tuple(axes), tuple(range(seeds)))


def _size_value(size: Size | str) -> Value:
    """Return a size as a number, or as a text such as "480x640"."""
    text = "x".join(map(str, size)) if isinstance(size, (tuple, list)) else str(size)
    parsed = parse_sample_size(text)
    if not all(parsed if isinstance(parsed, tuple) else (parsed,)):
        raise UsageError(f"the size is {quote(size)}", "set it to numbers of at least 1")
    return parsed if isinstance(parsed, int) else f"{parsed[0]}x{parsed[1]}"


def _source_hashes(*references: str) -> tuple[str, ...]:
    """Return a hash of each file; "" for one that can't be read, which the check of the Job reports."""
    hashes = []
    for reference in references:
        try:
            content = Path(reference.rpartition(":")[0]).read_bytes()
        except OSError:
            content = b""
        hashes.append(hashlib.sha256(content).hexdigest()[:16] if content else "")
    return tuple(hashes)


@contextlib.contextmanager
def _open(request: _Request, name: str, *, resume: bool) -> Iterator[ResultsFile]:
    """Hold the folder of the sweep to resume, or of a new one."""
    folder = _newest(name) if resume else None
    if folder is not None:
        with lock_sweep(folder):
            results = ResultsFile(folder)
            _check_same(results.header, request.header(), folder)
            yield results
        return
    check_job(request.run, Path.cwd())
    with create_run_dir(name, _SWEEPS) as new, lock_sweep(new):
        yield ResultsFile.create(new, request.header())


def _newest(name: str) -> Path | None:
    pattern = re.compile(re.escape(name) + r"\d*")
    files = [path for path in _SWEEPS.glob(f"*/{RESULTS_FILE}") if pattern.fullmatch(path.parent.name)]
    return max(files, key=lambda path: path.stat().st_mtime).parent if files else None


def _check_same(saved: SweepHeader, wanted: SweepHeader, folder: Path) -> None:
    """Raise UsageError if the saved sweep is another one."""
    fix = "use the same arguments, or start a new sweep with resume=False"
    if "job" not in saved.flags:
        raise UsageError(f"the sweep in {folder} is one of another command, not of a Job", "choose another name")
    before, after = _words(saved), _words(wanted)
    for name, text in after.items():
        if before.get(name) != text:
            raise UsageError(f"{name} is {text}, but in the sweep in {folder} it is {before.get(name)}", fix)
    if saved.flags.get(_SOURCE) != wanted.flags[_SOURCE]:
        raise UsageError(
            f"the file of the job or the metric has changed since the sweep in {folder} started",
            "start a new sweep with resume=False, so that all cells compare",
        )


def _words(header: SweepHeader) -> Mapping[str, str]:
    """Return the arguments of a sweep as texts."""
    flags = {name: quote(texts[0]) for name, texts in header.flags.items() if name != _SOURCE and texts}
    axes = {name: ", ".join(map(str, values)) for name, values in header.grid.axes}
    return {**flags, **dict.fromkeys(("batch", "size"), "not given"), **axes, "seeds": str(len(header.grid.seeds))}


def _run(
    request: _Request,
    results: ResultsFile,
    on_result: Callable[[CellResult], object],
    on_progress: Callable[[CellProgress], None],
) -> None:
    cwd = Path.cwd()
    finished = {result.cell for result in results.results}
    shared = job_request(cwd, request.limits, request.jobs)
    tasks = [
        job_task(request.run, cell, results.folder, shared) for cell in request.grid.cells() if cell not in finished
    ]

    def finish(result: CellResult) -> None:
        try:
            results.append(result)
        except OSError as error:
            raise not_writable(results.folder, error) from None
        on_result(result)

    admit = read_free_memory().admits if request.jobs > 1 else lambda *_: True
    run_cells(tasks, results.folder, finish, jobs=request.jobs, admit=admit, on_progress=on_progress)
