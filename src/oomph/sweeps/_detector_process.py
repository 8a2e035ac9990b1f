"""The process of a detector cell: `python -m oomph.sweeps._detector_process train RUN`, or `forecast RUN…`."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..detect import (
    StepStats,
    TrainConfig,
    TrainForecast,
    TrainResult,
    change_settings,
    demo_config,
    forecast,
    load_config,
    read_settings,
    read_weights,
    train,
    write_demo_dataset,
)
from ..errors import CannotFit, MissingFile, OomphError
from ..planner import Plan
from ._detector import DetectorRun
from ._run_files import RunResult, write_progress
from .supervisor import CELL_MARK

_MAX_NOMINAL_FACTOR = 4  # a common nominal batch larger than this many times the usual one would train too little
# Columns of results.csv, and their names in the table.
_METRICS = {
    "map50": "mAP50",
    "map50_95": "mAP50-95",
    "map_small": "AP small",
    "map_medium": "AP medium",
    "map_large": "AP large",
}


def build_config(run: DetectorRun) -> TrainConfig:
    """Return the config of a run.

    All runs of a sweep make the same updates, so that they compare: with one nominal batch, and without stopping early.

    Raises:
        UsageError: weights or settings can't be used.
    """
    run_dir = Path(run.run_dir)
    if run.data is None:
        data = write_demo_dataset(Path(run.demo))
        config = dataclasses.replace(demo_config(data, run_dir), budget_above_start=None, val_interval=1)
    else:
        config = TrainConfig(Path(run.data), run_dir)
    if run.weights is not None:
        weights = read_weights(Path(run.weights))
        weights.check_network(run.cfg or weights.size)
        config = dataclasses.replace(config, cfg=weights.size, widths=weights.widths, weights=Path(run.weights))
    if run.settings is not None:
        config, _ = read_settings(Path(run.settings), config)
    config, _ = change_settings(config, run.overrides, "--set")
    names = ("cfg", "imgsz", "batch", "epochs")
    given = {name: getattr(run, name) for name in names if getattr(run, name) is not None}
    given["budget"] = run.gpu_budget if torch.cuda.is_available() else run.host_budget
    nominal = nominal_batch(run.batches or (config.batch,), config.hyp.nominal_batch)
    hyp = dataclasses.replace(config.hyp, nominal_batch=nominal, same_updates=True)
    return dataclasses.replace(config, **given, seed=run.seed, hyp=hyp, patience=0)


def nominal_batch(batches: Sequence[int], usual: int) -> int:
    """Return the images of an update for all cells: the multiple of all batches that is nearest to the usual number.

    If the smallest common multiple is far larger, the usual number, at least the largest batch.
    """
    multiple = math.lcm(*batches)
    if multiple > max(_MAX_NOMINAL_FACTOR * usual, *batches):
        return max(usual, *batches)
    return multiple * max(round(usual / multiple), 1)


class CellProgressFile:
    """Writes how far a run is into the cell's folder, and its messages to standard output."""

    def __init__(self) -> None:
        self._folder = Path(os.environ.get(CELL_MARK, "."))
        self._ended_at = time.monotonic()
        self.rows: list[dict[str, Any]] = []
        self.epoch_seconds: list[float] = []

    def log(self, message: str) -> None:
        """Print a message."""
        _print(message)

    def on_progress(self, task: str, done: int, total: int | None) -> None:
        """Ignore tasks before training."""

    def on_plan(self, plan: Plan) -> None:
        """Print the plan."""
        for change in plan.changes:
            self.log(f"plan: {change.what}, because {change.why}")

    def on_step(self, stats: StepStats) -> None:
        """Write how much of the training is done."""
        done = (stats.epoch - 1 + stats.iteration / max(stats.iterations, 1)) / stats.epochs
        write_progress(self._folder, done)

    def on_epoch_end(self, row: dict[str, Any]) -> None:
        """Remember the row of an epoch and how long it took."""
        now = time.monotonic()
        self.rows.append(row)
        self.epoch_seconds.append(now - self._ended_at)
        self._ended_at = now
        self.log(f"epoch {row['epoch']}: loss {row['loss']:.3f}, mAP50 {row.get('map50') or 0:.3f}")


def run_training(run: DetectorRun) -> RunResult:
    """Train a cell, or resume it from its checkpoint."""
    config, progress = build_config(run), CellProgressFile()
    try:
        saved = load_config(config.run_dir)
    except MissingFile:
        result = train(config, progress)
    else:
        result = train(dataclasses.replace(saved.resolved, budget=config.budget), progress, resume=True)
    return _result_of(result, progress)


def _result_of(result: TrainResult, progress: CellProgressFile) -> RunResult:
    best = result.best or {}
    speeds = [row["images_per_second"] for row in progress.rows if row.get("images_per_second") is not None]
    # The first epoch is slower: kernels are chosen and caches filled.
    extra = {
        "images/s": _median(speeds[1:] or speeds),
        "s/epoch": _median(progress.epoch_seconds[1:] or progress.epoch_seconds),
        "micro-batches": float(len(result.plan.settings.micro_batch_sizes)),
        "retries": float(result.retries),
    }
    return RunResult(
        metrics={name: float(best[column]) for column, name in _METRICS.items() if best.get(column) is not None},
        predicted=result.predicted,
        measured=result.measured,
        uses_gpu=result.plan.planned_need.target != "cpu",
        extra={name: value for name, value in extra.items() if value is not None},
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


class _PrintedLog(CellProgressFile):
    """Prints messages as lines of JSON."""

    def log(self, message: str) -> None:
        _print_json({"log": message})


def print_forecasts(runs: Sequence[DetectorRun]) -> None:
    """Print what each run needs as a line of JSON."""
    configs = [build_config(run) for run in runs]
    _print_json({"log": _describe_updates(configs)})
    for result in forecast(configs, _PrintedLog()):
        _print_json(_row_of(result))


def _describe_updates(configs: Sequence[TrainConfig]) -> str:
    nominal = configs[0].hyp.nominal_batch
    others = {
        config.batch: config.batch * max(round(nominal / config.batch), 1)
        for config in configs
        if nominal % config.batch
    }
    sentence = f"every cell updates the weights after {nominal} images"
    if not others:
        return sentence
    exceptions = ", ".join(f"with batch {batch} after {images}" for batch, images in others.items())
    return f"{sentence}, but those {exceptions}, so that these don't compare well"


def _row_of(result: TrainForecast | CannotFit) -> dict[str, Any]:
    if isinstance(result, CannotFit):
        return {"why_not": result.why, "fix": result.fix}
    need = result.plan.planned_need
    is_cpu = need.target == "cpu"
    return {
        "peak": int((need.host if is_cpu else need.allocated).value),
        "host": int(need.host.high),
        "gpu": None if is_cpu else int(need.device.high),
        "seconds": result.seconds,
        "micro_batches": len(result.plan.settings.micro_batch_sizes),
    }


def _print_json(row: dict[str, Any]) -> None:
    _print(json.dumps(row))


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run what the command line says."""
    task, *arguments = sys.argv[1:]
    runs = [DetectorRun.parse(argument) for argument in arguments]
    try:
        if task == "forecast":
            print_forecasts(runs)
        elif RunResult.load(Path(runs[0].run_dir)) is None:  # else the sweep ended before it wrote the row
            run_training(runs[0]).save(Path(runs[0].run_dir))
    except OomphError as error:
        if task == "forecast":
            _print_json({"error": error.why, "fix": error.fix})
        else:
            _print(f"oomph: {error}")
        sys.exit(0 if task == "forecast" else error.exit_code)


if __name__ == "__main__":
    main()
