"""Sweeps of detectors: each cell is a training run in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import document
from ..errors import OomphError, UsageError
from ._grid import Cell, Value
from ._queue import CellTask
from ._result import CellResult, Status
from ._run_files import RUNS_FOLDER, FinishedRun, read_progress
from .supervisor import CellRequest, Limits

_MODULE = f"{__package__}._detector_process"
_KIND, _VERSION = "sweep run", 1


@dataclass(frozen=True)
class DetectorRun:
    """The training run of a cell, as values that cross processes.

    Attributes:
        data: the data.yaml; the demo dataset, written to `demo`, if None.
        demo: folder of the demo dataset.
        run_dir: folder of the run's files.
        cfg: the network, as in `oomph train --cfg`; that of the weights, or "s", if None.
        imgsz: side of the images; 640, or that of the demo, if None.
        batch: images per iteration; 16, or that of the demo, if None.
        batches: the batches of all cells, which share one nominal batch.
        epochs: number of epochs; 100, or those of the demo, if None.
        seed: seed of weights, order and augmentation.
        weights: initial weights.
        settings: settings file.
        overrides: other settings by name, as in a settings file.
        gpu_budget: bytes of the GPU, if it trains on one.
        host_budget: bytes of the process, if it trains on the CPU.
    """

    data: str | None
    demo: str
    run_dir: str
    cfg: str | None = None
    imgsz: int | None = None
    batch: int | None = None
    batches: tuple[int, ...] = ()
    epochs: int | None = None
    seed: int = 0
    weights: str | None = None
    settings: str | None = None
    overrides: Mapping[str, Value] = field(default_factory=dict)
    gpu_budget: int | None = None
    host_budget: int | None = None

    def of(self, cell: Cell, folder: Path) -> DetectorRun:
        """Return the run of a cell of the sweep in a folder."""
        values: dict[str, Any] = {_FIELDS[name]: value for name, value in cell.values if name in _FIELDS}
        overrides = {name: value for name, value in cell.values if name not in _FIELDS}
        run_dir = str((folder / RUNS_FOLDER / cell.name).absolute())
        return replace(self, run_dir=run_dir, seed=cell.seed, overrides=overrides, **values)

    def argument(self) -> str:
        """Return the run as one argument of a command line."""
        return json.dumps(document.write(_KIND, _VERSION, self))

    @classmethod
    def parse(cls, argument: str) -> DetectorRun:
        """Return the run of an argument."""
        return document.read(_KIND, _VERSION, cls, json.loads(argument))


_FIELDS = {"batch": "batch", "img": "imgsz", "cfg": "cfg", "weights": "weights"}  # by the name of the axis


@dataclass(frozen=True)
class CellForecast:
    """Predicted memory and time of a cell.

    Attributes:
        cell: the cell.
        peak: predicted peak in bytes, of the kind that is measured.
        host: upper bound of the process's RAM in bytes.
        gpu: upper bound of the GPU's memory in bytes; None on the CPU.
        seconds: estimated time of training; it is of the right order, no more.
        micro_batches: micro-batches of a batch.
        why_not: the reason why it can't fit; then the rest is None.
        fix: what would make it fit.
    """

    cell: Cell
    peak: int | None = None
    host: int | None = None
    gpu: int | None = None
    seconds: float | None = None
    micro_batches: int | None = None
    why_not: str = ""
    fix: str = ""

    @property
    def fits(self) -> bool:
        """True if the cell can run."""
        return not self.why_not


def forecast_cells(
    run: DetectorRun, cells: Sequence[Cell], folder: Path, cwd: Path, log: Callable[[str], object]
) -> Iterator[CellForecast]:
    """Predict cells before any of them runs, in a process of its own: the sweep must not hold torch or a GPU.

    Cells that differ in their seed alone share a prediction.

    Args:
        run: what all cells share.
        cells: the cells.
        folder: the folder of the sweep.
        cwd: the folder that the cells run in.
        log: called with sentences about the data.

    Raises:
        UsageError: data, weights or settings can't be used.
    """
    distinct = {cell.values: replace(cell, seed=0) for cell in cells}
    runs = [run.of(cell, folder).argument() for cell in distinct.values()]
    rows = _predict(runs, cwd, log)
    forecasts = dict(zip(distinct, rows, strict=True))
    for cell in cells:
        yield CellForecast(cell, **forecasts[cell.values])


def _predict(runs: Sequence[str], cwd: Path, log: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    process = subprocess.Popen(  # noqa: S603  our own interpreter and module
        [sys.executable, "-m", _MODULE, "forecast", *runs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        text=True,
    )
    with process:
        assert process.stdout is not None  # noqa: S101  for the type checker
        assert process.stderr is not None  # noqa: S101
        for line in process.stdout:
            message = json.loads(line)
            if "log" in message:
                log(message["log"])
            elif "error" in message:
                raise UsageError(message["error"], message["fix"])
            else:
                yield message
        error = process.stderr.read()
    if process.returncode:
        last = next((line for line in reversed(error.splitlines()) if line.strip()), f"exit code {process.returncode}")
        raise OomphError(f"the cells can't be predicted: {last}", "run `oomph train` with one of them to see why")


def detector_task(run: DetectorRun, forecast: CellForecast, folder: Path, request: CellRequest) -> CellTask:
    """Return the task that trains a cell; `request` has what all cells share."""
    cell_run = run.of(forecast.cell, folder)
    return CellTask(
        forecast.cell,
        replace(request, argv=(sys.executable, "-m", _MODULE, "train", cell_run.argument())),
        FinishedRun(cell_run.run_dir, request.limits),
        read_fraction=read_progress,
        need=Limits(host=forecast.host, gpu=forecast.gpu),
        seconds=forecast.seconds,
    )


def skipped_cell(forecast: CellForecast) -> CellResult:
    """Return the row of a cell that can't fit."""
    return CellResult(forecast.cell, Status.SKIPPED, why=forecast.why_not, fix=(forecast.fix,))
