"""The process of a Job's cell: `python -m oomph.sweeps._job_process train RUN`, or `check RUN`. It imports torch."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import CannotFit, OomphError, UsageError, describe, quote
from ..failures import classify_exception
from ..job import Job, load_job_and_metric
from ..machine import Target, find_target, peak_rss_bytes, rss_bytes
from ..patches import configure_allocator
from ..planner import JobPredictor, Plan, PlanRequest, plan, plan_fastest
from ..prediction import Prediction, rss_growth_after_planning
from ..recovery import guard
from ..settings import Settings, Size
from ..units import MIB, format_size
from ._job import JOB_MARK, JobRun
from ._run_files import RunResult, error_line, write_progress
from .supervisor import CELL_MARK

_log = logging.getLogger("oomph")
_HEADROOM = 64 * MIB  # of RAM: the guard keeps it free, and the heap fragments
_WARMUP_STEPS = 3  # in which kernels are chosen and the guard checks the loss
_PROGRESS_INTERVAL = 0.25  # seconds
_MAX_SEED = 2**32  # of NumPy


def run_training(run: JobRun) -> RunResult:
    """Plan and train a cell, and compute its metrics.

    Raises:
        CannotFit: it doesn't fit into its budget.
        UsageError: the Job or its metric can't be used.
    """
    set_seed(run.seed)  # a Job may draw its data when it is loaded
    job, metric = load_job_and_metric(run.job, run.metric)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    job_plan = plan_run(run, job, device)
    set_seed(run.seed)
    model, training = train(run, job, job_plan, device)
    measured = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_rss_bytes()
    return RunResult(
        metrics=compute_metrics(metric, model, run.sample_size, run.metric),
        predicted=predicted_peak(job_plan.planned_need),
        measured=measured,
        uses_gpu=device.type == "cuda",
        extra=training.numbers(),
    )


def set_seed(seed: int) -> None:
    """Seed torch, NumPy (if the Job can use it) and Python."""
    torch.manual_seed(seed)
    random.seed(seed)
    with contextlib.suppress(ImportError):
        import numpy as np  # noqa: PLC0415  torch runs without it

        np.random.seed(seed % _MAX_SEED)


def plan_run(run: JobRun, job: Job, device: torch.device) -> Plan:
    """Plan the cell for the memory that it may use on this machine.

    Raises:
        CannotFit: nothing fits.
    """
    settings = Settings(batch=run.batch, size=run.sample_size, allocator=configure_allocator(device))
    target = _target_of(device)
    if target.is_cpu:
        job_plan = _plan_on_cpu(settings, job, target, min(run.host_budget or target.memory, target.memory))
    else:
        job_plan = plan(job, settings, target, budget=run.gpu_budget)
    for change in job_plan.changes:
        _log.info("plan: %s, because %s", change.what, change.why)
    return job_plan


def _plan_on_cpu(settings: Settings, job: Job, target: Target, budget: int) -> Plan:
    request = PlanRequest(settings, target, budget - _HEADROOM)
    try:
        job_plan = plan_fastest(request, ProcessPredictor(job, target))
    except CannotFit as error:
        reserved = f"{format_size(budget)} minus {format_size(_HEADROOM)} for the guard"
        raise CannotFit(f"{error.why} ({reserved})", error.fix) from None
    return replace(job_plan, budget=budget)  # of which the guard keeps the same part free


class ProcessPredictor(JobPredictor):
    """Predicts the RSS of this process on the CPU, whose imports are known, where `oomph.plan` has to assume some."""

    def predict(self, settings: Settings) -> Prediction:
        """Return the prediction for settings."""
        prediction = super().predict(settings)
        total = rss_growth_after_planning(prediction.allocated).plus(rss_bytes())
        return replace(prediction, device=total, host=total)


def _target_of(device: torch.device) -> Target:
    if device.type != "cuda":
        return find_target("cpu")
    target = find_target(torch.cuda.get_device_name(device))
    # The CUDA context of this process exists by now.
    return target.with_free_memory(torch.cuda.mem_get_info(device)[0] + target.outside[0])


def predicted_peak(need: Prediction) -> int:
    """Return the prediction of what is measured."""
    return int((need.host if need.target == "cpu" else need.allocated).value)


@dataclass
class Training:
    """Statistics of the steps so far.

    Attributes:
        batch: samples of a step.
        steps: number of steps.
        device: where they run.
    """

    batch: int
    steps: int
    device: torch.device
    done: int = 0
    retries: int = 0
    micro_batches: int = 1
    _seconds: float = 0.0
    _timed_from: int = 0
    _started: float = 0.0
    _next_write: float = 0.0

    def start_step(self) -> None:
        """Start the clock after the warmup."""
        if self.done == min(_WARMUP_STEPS, self.steps - 1):
            self._started, self._timed_from = self._now(), self.done

    def end_step(self, retries: int, micro_batches: int) -> None:
        """Count a step, and write how much of the training is done."""
        self.done += 1
        self.retries += retries
        self.micro_batches = max(self.micro_batches, micro_batches)
        if self.done == self.steps:
            self._seconds = self._now() - self._started
        if time.monotonic() >= self._next_write or self.done == self.steps:
            self._next_write = time.monotonic() + _PROGRESS_INTERVAL
            write_progress(Path(os.environ.get(CELL_MARK, ".")), self.done / self.steps)

    def numbers(self) -> dict[str, float]:
        """Return the numbers of a row."""
        samples = self.batch * (self.done - self._timed_from)
        return {
            "samples_per_second": samples / max(self._seconds, 1e-9),
            "micro_batches": float(self.micro_batches),
            "retries": float(self.retries),
        }

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def train(run: JobRun, job: Job, job_plan: Plan, device: torch.device) -> tuple[nn.Module, Training]:
    """Train a Job by guarded steps, each on a fresh batch."""
    assert job.optimizer is not None  # noqa: S101  a Job has one
    model = job.model().to(device).train()
    steps = guard(model=model, optimizer=job.optimizer(model), loss=job.loss, forward=job.step, plan=job_plan)
    training = Training(run.batch, run.steps, device)
    try:
        for _ in range(run.steps):
            training.start_step()
            report = steps.step(job.batch(run.batch, run.sample_size))
            training.end_step(report.retries, report.micro_batches)
    finally:
        steps.close()
    return model, training


def compute_metrics(metric: Callable[..., Any], model: nn.Module, size: Size, reference: str) -> dict[str, float]:
    """Return the metrics by name; a single number has the name of its function.

    Raises:
        UsageError: the function fails, or returns something else than finite numbers.
    """
    model.eval()
    try:
        with torch.no_grad():
            value = metric(model, size)
    except (Exception, SystemExit) as error:
        if classify_exception(error) is not None:
            raise  # memory ran out, which the sweep explains
        traceback.print_exc()
        raise UsageError(f"the metric {reference} raised {describe(error)}", "fix the function") from error
    values = value if isinstance(value, Mapping) else {reference.rpartition(":")[2]: value}
    if not values:
        raise UsageError(f"the metric {reference} returned an empty dict", "return a float or a dict of floats")
    return {str(name): _finite_number(str(name), number) for name, number in values.items()}


def _finite_number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor of several numbers is a RuntimeError
        raise UsageError(f"the metric {name} is {quote(value)}", "return a float or a dict of floats") from None
    if not math.isfinite(number):
        raise UsageError(
            f"the metric {name} is {number}", "check whether training diverged, and what the metric divides by"
        )
    return number


def check(run: JobRun) -> None:
    """Load the Job and the metric; print an error as JSON."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            load_job_and_metric(run.job, run.metric)
    except UsageError as error:
        sys.stdout.write(json.dumps({"why": error.why, "fix": error.fix}))
        sys.exit(error.exit_code)


def main() -> None:
    """Run what the command line says."""
    task, argument = sys.argv[1:]
    run = JobRun.parse(argument)
    os.environ[JOB_MARK] = "1"
    if task == "check":
        check(run)
        return
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run_dir = Path(run.run_dir)
    try:
        if RunResult.load(run_dir) is None:  # else the sweep ended before it wrote the row
            run_training(run).save(run_dir)
    except OomphError as error:
        sys.stdout.flush()
        sys.stderr.write(f"{error_line(error)}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
