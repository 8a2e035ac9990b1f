"""Sweeps of Jobs: each cell trains a Job in a process of its own, and then calls its metric."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import document
from ..errors import OomphError, UsageError, shorten
from ..settings import Size, parse_sample_size
from ._grid import Cell
from ._queue import CellTask
from ._run_files import RUNS_FOLDER, FinishedRun, read_progress
from .supervisor import CellRequest, Limits

JOB_MARK = "OOMPH_SWEEP_JOB"  # an environment variable of the processes that load a Job
_MODULE = f"{__package__}._job_process"
_KIND, _VERSION = "sweep job", 1
_MAX_LINE = 200  # characters


@dataclass(frozen=True)
class JobRun:
    """The training run of a cell, as values that cross processes.

    Attributes:
        job: the function that returns the Job, `path/to/file.py:function`.
        metric: the function that is called after training, of the same form.
        steps: number of optimizer steps.
        run_dir: folder of the run's result.
        batch: samples of a step.
        size: the size that the Job's `batch` and the metric get; a height and width are a text such as "480x640".
        seed: seed of torch, NumPy and Python.
        host_budget: bytes of the process, on the CPU.
        gpu_budget: bytes of the GPU.
    """

    job: str
    metric: str
    steps: int
    run_dir: str = ""
    batch: int = 1
    size: int | str = 0
    seed: int = 0
    host_budget: int | None = None
    gpu_budget: int | None = None

    @property
    def sample_size(self) -> Size:
        """The size as the Job's functions get it."""
        return parse_sample_size(str(self.size))

    def of(self, cell: Cell, folder: Path) -> JobRun:
        """Return the run of a cell of the sweep in a folder."""
        values: dict[str, Any] = dict(cell.values)
        return replace(self, run_dir=str((folder / RUNS_FOLDER / cell.name).absolute()), seed=cell.seed, **values)

    def argument(self) -> str:
        """Return the run as one argument of a command line."""
        return json.dumps(document.write(_KIND, _VERSION, self))

    @classmethod
    def parse(cls, argument: str) -> JobRun:
        """Return the run of an argument."""
        return document.read(_KIND, _VERSION, cls, json.loads(argument))


def check_job(run: JobRun, cwd: Path) -> None:
    """Load the Job and the metric once before any cell runs, in a process of its own: the sweep must not hold torch.

    Raises:
        UsageError: the Job or the metric can't be loaded.
        OomphError: the process died.
    """
    process = subprocess.run(  # noqa: S603  our own interpreter and module
        [sys.executable, "-m", _MODULE, "check", run.argument()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        cwd=cwd,
        text=True,
        errors="replace",
    )
    if process.returncode == 0:
        return
    if process.returncode == UsageError.exit_code and process.stdout:
        raise UsageError(**json.loads(process.stdout))
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit code {process.returncode}"
    raise OomphError(
        f"the job can't be loaded: {shorten(last, _MAX_LINE)}", f"run `oomph predict {run.job}` to see why"
    )


def job_task(run: JobRun, cell: Cell, folder: Path, request: CellRequest) -> CellTask:
    """Return the task that trains a cell; `request` has what all cells share."""
    cell_run = replace(run.of(cell, folder), host_budget=request.limits.host, gpu_budget=request.limits.gpu)
    return CellTask(
        cell,
        replace(request, argv=(sys.executable, "-m", _MODULE, "train", cell_run.argument())),
        FinishedRun(cell_run.run_dir, request.limits),
        read_fraction=read_progress,
    )


def job_request(cwd: Path, limits: Limits, jobs: int) -> CellRequest:
    """Return what the requests of all cells share."""
    return CellRequest((), str(cwd), limits=limits, is_alone=jobs == 1)
