"""A training run on the console: messages, a progress bar, and a summary."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from ..display import HtmlRepr
from ..units import count_of, format_size, format_time
from .notebook import in_notebook

if TYPE_CHECKING:
    from ..detect import StepStats, TrainResult
    from ..planner import Plan


class ConsoleProgress:
    """Shows a run: progress bars on a terminal, a line per epoch in a pipe or notebook, nothing if `quiet`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        out = sys.stderr if quiet else sys.stdout
        self._console = Console(file=out, highlight=False, soft_wrap=True, force_jupyter=False)
        self._bar = Progress(
            TextColumn("{task.fields[title]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[details]}"),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal or in_notebook(),
        )
        self._task, self._task_name = self._bar.add_task("", total=None, title="", details=""), ""

    def __enter__(self) -> ConsoleProgress:  # noqa: PYI034  Self is newer than Python 3.10
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def log(self, message: str) -> None:
        """Print a message."""
        if not self._quiet:
            self._bar.console.print(message, markup=False)
            self._console.file.flush()

    def on_progress(self, task: str, done: int, total: int | None) -> None:
        """Update the bar of a task before training."""
        if self._task_name != task:  # a new task, because rich can't reset a total to None
            self._bar.remove_task(self._task)
            self._task, self._task_name = self._bar.add_task("", total=total, title=task, details=""), task
        self._bar.update(self._task, completed=done, total=total)

    def on_plan(self, plan: Plan) -> None:
        """Print the memory plan."""
        for line in plan_lines(plan):
            self.log(line)

    def on_step(self, stats: StepStats) -> None:
        """Update the bar of the epoch."""
        details = [
            f"{format_time(stats.seconds_left)} left",
            f"loss {stats.loss:.3f}",
            f"{stats.images_per_second:.0f} images/s",
            count_of(stats.micro_batches, "micro-batch", "micro-batches"),
            *([f"peak {format_size(stats.peak_bytes)}"] if stats.peak_bytes else []),
            f"RSS {format_size(stats.rss_bytes)}",
        ]
        self._bar.update(
            self._task,
            completed=stats.iteration,
            total=stats.iterations,
            title=f"epoch {stats.epoch}/{stats.epochs}",
            details="  ".join(details),
        )

    def on_epoch_end(self, row: dict[str, Any]) -> None:
        """Print the results of an epoch."""
        scores = "" if row.get("map50") is None else f"  mAP50 {row['map50']:.3f}  mAP50-95 {row['map50_95']:.3f}"
        is_timed = row["images_per_second"] is not None  # not if the run was resumed at the validation
        speed = f"  {row['images_per_second']:.0f} images/s" if is_timed else ""
        self.log(f"epoch {row['epoch']}: loss {row['loss']:.3f}{scores}{speed}  peak {format_size(row['peak_bytes'])}")


def plan_lines(plan: Plan) -> list[str]:
    """Describe a memory plan."""
    need = plan.requested_need.device
    settings = f"batch {plan.requested.batch} at {plan.requested.size}, {plan.requested.precision}"
    requested = f"requested: {settings}: needs {format_size(need.value)} (up to {format_size(need.high)})"
    requested = f"{requested} of {format_size(plan.budget)}"
    if plan.reserved:
        total = format_size(plan.budget + plan.reserved)
        requested += f" ({total} minus {format_size(plan.reserved)} for loaded batches and the guard)"
    if not plan.changes:
        return [requested, "plan: the requested settings fit"]
    changes = [f"plan: {change.what}, because {change.why}. {change.cost}." for change in plan.changes]
    return [requested, *changes, f"plan: predicted need {format_size(plan.planned_need.device.value)}"]


@dataclass(frozen=True)
class TrainReport(HtmlRepr):
    """Report of a training run."""

    result: TrainResult

    def document(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        result = self.result
        return {
            "oomph": "training",
            "version": 1,
            "run_dir": result.run_dir,
            "epochs": result.epochs,
            "best": result.best,
            "saved_epoch": result.saved_epoch,
            "memory": {"predicted": result.predicted, "measured": result.measured},
            "requested_need": result.plan.requested_need.device.value,
            "budget": result.plan.budget + result.plan.reserved,
            "retries": result.retries,
            "micro_batches": len(result.plan.settings.micro_batch_sizes),
        }

    def render(self, *, plain: bool) -> RenderableType:
        """Return a summary of a few lines."""
        del plain
        result = self.result
        lines = [*_best_lines(result), _memory_line(result)]
        if result.plan.changes:
            lines.append(_without_plan(result.plan))
        if result.retries:
            lines.append(
                f"{count_of(result.retries, 'retry', 'retries')} because memory ran out; every step was completed"
            )
        lines.append(f"results are in {result.run_dir}")
        return Group(*(Text(line) for line in lines))


def _best_lines(result: TrainResult) -> list[str]:
    best = result.best
    if best is None:
        return []
    lines = [f"best: epoch {best['epoch']}, mAP50 {best['map50']:.3f}, mAP50-95 {best['map50_95']:.3f}"]
    if result.saved_epoch != best["epoch"]:
        content = "there is no best.pt" if result.saved_epoch is None else f"best.pt is epoch {result.saved_epoch}"
        lines.append(f"the weights of epoch {best['epoch']} could not be written: {content}")
    return lines


def _memory_line(result: TrainResult) -> str:
    deviation = 100 * (result.predicted / max(result.measured, 1) - 1)
    sizes = f"predicted {format_size(result.predicted)}, measured {format_size(result.measured)}"
    return f"memory: {sizes} ({deviation:+.1f} %)"


def _without_plan(plan: Plan) -> str:
    """Describe what the requested settings would have needed."""
    need, budget = plan.requested_need.device, format_size(plan.budget)
    if need.value > plan.budget:
        return f"the requested settings would have needed {format_size(need.value)} of {budget}"
    return f"the requested settings might have needed {format_size(need.high)} of {budget}"
