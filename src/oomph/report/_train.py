"""How a training run is shown: sentences, a bar with figures, and what came of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from ..units import count_of, format_size, format_time

if TYPE_CHECKING:
    from ..detect import Outcome
    from ..planner import Plan


class TrainTeller:
    """Tells how a run goes: bars on a terminal, a line an epoch in a pipe, nothing where a document was asked for."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(file=sys.stderr if quiet else sys.stdout, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.fields[what]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task, self._counts = self._bar.add_task("", total=None, what="", facts=""), ""

    def __enter__(self) -> TrainTeller:  # noqa: PYI034  Self is newer than Python 3.10
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def said(self, words: str) -> None:
        """A sentence about what was found or decided."""
        if not self._quiet:
            self._bar.console.print(words, markup=False)
            self._console.file.flush()

    def counted(self, what: str, done: int, total: int | None) -> None:
        """So many of something are done, and of how many, before the training begins."""
        if self._counts != what:  # a task of its own: rich keeps a total that it was told once
            self._bar.remove_task(self._task)
            self._task, self._counts = self._bar.add_task("", total=total, what=what, facts=""), what
        self._bar.update(self._task, completed=done, total=total)

    def planned(self, made: Plan) -> None:
        """What the run will need."""
        for line in plan_lines(made):
            self.said(line)

    def stepped(self, epoch: int, done: int, total: int, facts: dict[str, Any]) -> None:
        """An iteration is done."""
        speed, host = f"{facts['images_per_second']:.0f} images/s", f"host {format_size(facts['host'])}"
        memory = [format_size(facts["memory"])] if facts["memory"] else []
        left = f"{format_time(facts['seconds_left'])} left"
        words = [
            left,
            f"loss {facts['loss']:.3f}",
            speed,
            count_of(facts["micro_batches"], "micro-batch", "micro-batches"),
            *memory,
            host,
        ]
        what = f"epoch {epoch + 1}/{facts['epochs']}"
        self._bar.update(self._task, completed=done, total=total, what=what, facts="  ".join(words))

    def ended_epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done."""
        scored = "" if row.get("map50") is None else f"  mAP50 {row['map50']:.3f}  mAP50-95 {row['map50_95']:.3f}"
        known = row["images_per_second"] is not None  # not where the epoch was only validated
        speed = f"  {row['images_per_second']:.0f} images/s" if known else ""
        memory = format_size(row["memory"])
        self.said(f"epoch {row['epoch']}: loss {row['loss']:.3f}{scored}{speed}  {memory} at most")


def plan_lines(made: Plan) -> list[str]:
    """A plan in words."""
    need = f"{format_size(made.requested_need.device.value)} (up to {format_size(made.requested_need.device.high)})"
    asked = f"asked: batch {made.requested.batch} at {made.requested.size}, {made.requested.precision}: needs {need}"
    asked = f"{asked} of {format_size(made.budget)}"
    if made.reserved:
        asked += f" ({format_size(made.budget + made.reserved)} less what waiting batches and the guard need)"
    if not made.changes:
        return [asked, "plan: it fits as asked"]
    moves = [f"plan: {move.what}, since {move.why}. {move.cost}." for move in made.changes]
    return [asked, *moves, f"plan: it will need {format_size(made.planned_need.device.value)}"]


@dataclass(frozen=True)
class TrainReport:
    """What came of a run."""

    outcome: Outcome

    def document(self) -> dict[str, Any]:
        """Everything."""
        done = self.outcome
        return {
            "oomph": "training",
            "version": 1,
            "folder": done.folder,
            "epochs": done.epochs,
            "best": done.best,
            "kept": done.kept,
            "memory": {"predicted": done.predicted, "measured": done.measured},
            "asked_needs": done.plan.requested_need.device.value,
            "budget": done.plan.budget + done.plan.reserved,
            "retries": done.retries,
            "micro_batches": len(done.plan.settings.micro_batch_sizes),
        }

    def render(self, *, plain: bool) -> RenderableType:
        """A few lines."""
        del plain
        done, best = self.outcome, self.outcome.best
        lines = []
        if best is not None:
            figures = f"mAP50 {best['map50']:.3f}, mAP50-95 {best['map50_95']:.3f}"
            lines.append(f"best: epoch {best['epoch']}, {figures}")
            if done.kept != best["epoch"]:
                held = "there is no best.pt" if done.kept is None else f"best.pt holds epoch {done.kept}"
                lines.append(f"its weights could not be written: {held}")
        off = 100 * (done.predicted / max(done.measured, 1) - 1)
        sizes = f"predicted {format_size(done.predicted)}, measured {format_size(done.measured)}"
        lines.append(f"memory: {sizes} ({off:+.1f} %)")
        if done.plan.changes:
            lines.append(_otherwise(done.plan))
        if done.retries:
            lines.append(
                f"{count_of(done.retries, 'time')} a step ran short of memory and was tried again; none was lost"
            )
        lines.append(f"everything is in {done.folder}")
        return Group(*(Text(line) for line in lines))


def _otherwise(made: Plan) -> str:
    """What would have become of the run as it was asked for."""
    need, room = made.requested_need.device, format_size(made.budget)
    if need.value > made.budget:
        return f"as asked it would have needed {format_size(need.value)}, and there were {room}"
    return f"as asked it might have needed {format_size(need.high)}, and there were {room}"
