"""The result of a run in a sentence and a few numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...failures import FailureKind
from ...monitor import Record
from ...units import count_of, format_number, format_size, format_time
from ._run_data import RunData, stop_event
from ._series import finite
from ._step_charts import waiting_share
from ._training_charts import best_epoch

_KILLED = {FailureKind.OOM_KILL, FailureKind.UNEXPECTED_END}


@dataclass(frozen=True)
class Summary:
    """The result of a run.

    Attributes:
        state: "finished", "running", "stopped", "failed" or "killed".
        sentence: the state, and why.
        facts: numbers by name.
    """

    state: str
    sentence: str
    facts: tuple[tuple[str, str], ...]

    @property
    def level(self) -> str:
        """How good that is: "good", "warn" or "bad"."""
        return {"finished": "good", "running": "good", "stopped": "warn"}.get(self.state, "bad")


def summarize(run: RunData) -> Summary:
    """Return the summary of a run."""
    state = run_state(run)
    return Summary(state, _sentence(run, state), tuple(_facts(run)))


def run_state(run: RunData) -> str:
    """Return how a run ended, or that it is running: the state of its first rank, unless another one failed."""
    states = [_rank_state(rank.record) for rank in run.ranks]
    return next((state for state in ("failed", "killed") if state in states), states[0])


def _rank_state(record: Record) -> str:
    if stop_event(record) is not None:
        return "stopped"
    if any(event["event"] == "error" and event["t"] >= record.start_times[-1] for event in record.events):
        return "failed"
    if record.has_ended:
        return "finished"
    return "running" if record.is_running else "killed"


def _sentence(run: RunData, state: str) -> str:
    duration = format_time(run.duration)
    if run.is_empty:
        nothing = "The Record has no samples and no steps"
        return (
            f"{nothing} yet: the run has just started." if state == "running" else f"{nothing}, so there is no chart."
        )
    if state in {"failed", "killed"}:
        return f"{state.capitalize()} after {duration}: {_why(run, state)}."
    if state == "stopped":
        return f"Stopped on request after {duration}. {_verdict(run)}"
    if state == "running":
        return f"Running for {duration}. {_verdict(run)}"
    return f"Finished in {duration}. {_verdict(run)}"


def _why(run: RunData, state: str) -> str:
    for _, finding in run.findings:
        if state == "failed" or finding.kind in _KILLED:
            title = finding.title
            is_error = finding.kind is FailureKind.PYTHON_ERROR
            return f"{title} ({finding.evidence})" if is_error else title
    return "the Record has no reason"


def _verdict(run: RunData) -> str:
    titles = [finding.title for _, finding in run.findings]
    if not titles:
        return "No problem was found."
    more = f" (and {count_of(len(titles) - 1, 'more finding')})" if len(titles) > 1 else ""
    return f"{titles[0]}{more}."


def _facts(run: RunData) -> Iterator[tuple[str, str]]:
    yield "duration", format_time(run.duration)
    if run.epochs:
        total = finite(run.config.get("epochs"))
        yield "epochs", f"{len(run.epochs)} of {int(total)}" if total is not None else str(len(run.epochs))
    if steps := _step_count(run):
        yield "steps", f"{steps:,}"
    best = best_epoch(run)
    if best is not None:
        yield "best mAP50-95", f"{best['map50_95']:.3f} (mAP50 {best['map50']:.3f}, epoch {best['epoch']:.0f})"
    yield from _memory_facts(run)
    if run.record.steps:
        yield "retries", str(run.retries)
    yield from _speed_facts(run)
    if len(run.record.start_times) > 1:
        yield "resumed", count_of(len(run.record.start_times) - 1, "time")
    if len(run.ranks) > 1:
        yield "ranks", str(len(run.ranks))
    damaged = sum(rank.record.damaged_lines for rank in run.ranks)
    if damaged:
        yield "damaged lines", str(damaged)


def _step_count(run: RunData) -> int:
    """Return the number of steps; the Record of a fast run lacks some, and loops count from 0 or 1."""
    numbers = [number for step in run.record.steps if (number := finite(step.get("step"))) is not None]
    return int(max(numbers) - min(numbers)) + 1 if numbers else len(run.record.steps)


def _memory_facts(run: RunData) -> Iterator[tuple[str, str]]:
    predicted, measured = run.predicted.peak, run.measured_peak
    kind = "allocated on a GPU" if run.uses_gpu else "RSS of the main process"
    if measured is not None:
        yield f"measured peak ({kind})", format_size(measured)
    if predicted is not None:
        error = f" ({100 * (predicted / measured - 1):+.1f} %)" if measured else ""
        yield "predicted peak", f"{format_size(predicted)}{error}"
    if run.predicted.budget is not None:
        yield "budget", format_size(run.predicted.budget)


def _speed_facts(run: RunData) -> Iterator[tuple[str, str]]:
    speeds = [row["images_per_second"] for row in run.epochs if "images_per_second" in row]
    if speeds:
        yield "speed", f"{format_number(speeds[-1])} images/s"
    share = waiting_share(run)
    if share is not None:
        yield "waited for data", f"{share:.1f} % of the time"
