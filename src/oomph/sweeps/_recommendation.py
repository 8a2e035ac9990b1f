"""The recommendation of a sweep in words: what cheaper cells cost in accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..units import format_number, format_size, format_time
from ._front import Cost, Summary, find_front

# Metrics of objects by their size; a smaller image loses small objects first.
_BY_OBJECT_SIZE = {"AP small": "small", "AP medium": "medium", "AP large": "large"}
_MIN_SAVING = 0.05  # a smaller saving isn't worth a sentence
_MAX_CHEAPER = 3  # sentences
_SAME_MEMORY = 1.01  # sizes that differ by a smaller factor are the same
_SAME_SAVING = 0.02
_LEARNED = 0.01  # a metric between 0 and 1 that is smaller is noise
_ALL, _MOST = 0.95, 0.6  # shares of a difference


@dataclass(frozen=True)
class Goal:
    """Metric that cells are compared by, and whether smaller is better."""

    metric: str
    minimize: bool = False


def recommend(summaries: Sequence[Summary], goal: Goal) -> tuple[str, ...]:
    """Return sentences that compare the best cell with cheaper ones; empty if no cell has the metric."""
    compared = [summary for summary in summaries if goal.metric in summary.metrics]
    if not compared:
        return ()
    best = _best(compared, goal)
    words = _Words(goal, compared)
    if words.in_points and best.metrics[goal.metric].mean < _LEARNED:
        return (words.best(best, is_only=len(compared) == 1), "No cell has learned anything yet: train longer.")
    sentences = [
        words.best(best, is_only=len(compared) == 1),
        *(words.cheaper(summary, best) for summary in _cheaper(compared, best, goal)),
    ]
    if len(compared) > 1 and all(summary.seeds == 1 for summary in compared):
        sentences.append("With one seed the scatter is unknown: a small difference may be chance.")
    return tuple(sentences)


def _best(summaries: Sequence[Summary], goal: Goal) -> Summary:
    """Return the cell with the best metric; of equal ones, the fastest of those with the least memory."""
    choose = min if goal.minimize else max
    best = choose(summary.metrics[goal.metric].mean for summary in summaries)
    equal = [summary for summary in summaries if summary.metrics[goal.metric].mean == best]
    least = min((summary.memory for summary in equal if summary.memory is not None), default=0)
    small = [summary for summary in equal if (summary.memory or 0) <= _SAME_MEMORY * least]
    return min(small, key=lambda summary: float("inf") if summary.seconds is None else summary.seconds)


def _cheaper(summaries: Sequence[Summary], best: Summary, goal: Goal) -> list[Summary]:
    """Return the cells on a front that save memory or time, those nearest to the best first."""
    found: dict[tuple[object, ...], Summary] = {}
    costs: tuple[Cost, ...] = ("memory", "seconds")
    for cost in costs:
        for point in reversed(find_front(summaries, goal.metric, cost, minimize=goal.minimize)):
            if point.on_front and _saving(point.summary, best, cost) >= _MIN_SAVING:
                found.setdefault(point.summary.values, point.summary)
    cheaper: list[Summary] = []
    for summary in found.values():
        if not any(_is_as_good(other, summary, best, goal) for other in cheaper):
            cheaper.append(summary)
    return cheaper[:_MAX_CHEAPER]


def _is_as_good(other: Summary, summary: Summary, best: Summary, goal: Goal) -> bool:
    """Return True if a cell saves about as much as another one and is not worse."""
    gain = other.metrics[goal.metric].mean - summary.metrics[goal.metric].mean
    costs: tuple[Cost, ...] = ("memory", "seconds")
    saves = all(_saving(other, best, cost) >= _saving(summary, best, cost) - _SAME_SAVING for cost in costs)
    return saves and (-gain if goal.minimize else gain) >= 0


def _saving(other: Summary, best: Summary, cost: Cost) -> float:
    """Return the saved share of a cost, below 0 if it grows; 0 if it is unknown."""
    before, after = getattr(best, cost), getattr(other, cost)
    return 1 - after / before if before and after is not None else 0.0


class _Words:
    """Words for the differences of one metric."""

    def __init__(self, goal: Goal, summaries: Sequence[Summary]) -> None:
        self.goal = goal
        means = [summary.metrics[goal.metric].mean for summary in summaries]
        # Shares such as mAP are compared in points of percent.
        self.in_points = not goal.minimize and all(0 <= mean <= 1 for mean in means)

    def best(self, best: Summary, *, is_only: bool) -> str:
        """Name the best cell with its numbers."""
        metric = best.metrics[self.goal.metric]
        scatter = "" if metric.deviation is None else f" ± {format_number(metric.deviation)}"
        costs = [
            *([] if best.memory is None else [f"with {format_size(best.memory)}"]),
            *([] if best.seconds is None else [f"in {_time(best.seconds)}"]),
        ]
        verdict = "is the only cell that is done" if is_only else f"has the best {self.goal.metric}"
        numbers = " ".join([f"{format_number(metric.mean)}{scatter}", *costs])
        return f"{_values(best) or 'The command'} {verdict}: {numbers}."

    def cheaper(self, other: Summary, best: Summary) -> str:
        """Say what a cheaper cell saves and loses."""
        loss = self._loss(other, best, self.goal.metric)
        saves = f"{_change(other, best)} saves {_savings(other, best)}"
        if loss <= 0:
            return f"{saves} at the same {self.goal.metric}."
        scatter = self._scatter(other, best)
        if scatter is not None and loss <= scatter:
            within = (
                f"a difference of {self._amount(loss)} is within the scatter of the seeds ({self._number(scatter)})"
            )
            return f"{saves}; {within}."
        return f"{saves} for {self._amount(loss)} of {self.goal.metric}{_lost_objects(self, other, best)}."

    def _loss(self, other: Summary, best: Summary, metric: str) -> float:
        difference = best.metrics[metric].mean - other.metrics[metric].mean
        return -difference if self.goal.minimize else difference

    def _scatter(self, *summaries: Summary) -> float | None:
        """Return the larger deviation of the seeds; None if it is unknown."""
        deviations = [summary.metrics[self.goal.metric].deviation for summary in summaries]
        return max((deviation for deviation in deviations if deviation is not None), default=None)

    def _amount(self, difference: float) -> str:
        return f"{self._number(difference)} points" if self.in_points else self._number(difference)

    def _number(self, difference: float) -> str:
        return f"{100 * difference:.1f}" if self.in_points else format_number(difference)

    def loss_by_object_size(self, other: Summary, best: Summary) -> dict[str, float]:
        """Return what is lost on objects of each size that there are; empty if there is only one."""
        known = {name: size for name, size in _BY_OBJECT_SIZE.items() if name in other.metrics and name in best.metrics}
        return {size: max(self._loss(other, best, name), 0.0) for name, size in known.items()} if len(known) > 1 else {}


def _savings(other: Summary, best: Summary) -> str:
    """Return what a cell saves, and what it needs more: `20 % of the time, with 30 % more memory`."""
    changes = {"memory": _saving(other, best, "memory"), "time": _saving(other, best, "seconds")}
    less = [f"{100 * share:.0f} % of the {name}" for name, share in changes.items() if share >= _MIN_SAVING]
    more = [f"{-100 * share:.0f} % more {name}" for name, share in changes.items() if share <= -_MIN_SAVING]
    return " and ".join(less) + "".join(f", with {growth}," for growth in more)


def _time(seconds: float) -> str:
    return format_time(seconds) if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004  whole seconds are enough


def _lost_objects(words: _Words, other: Summary, best: Summary) -> str:
    losses = words.loss_by_object_size(other, best)
    total = sum(losses.values())
    if not total:
        return ""
    size = max(losses, key=lambda name: losses[name])
    share = losses[size] / total
    if share < _MOST:
        return ""
    return f", {'all of it' if share >= _ALL else 'mostly'} on {size} objects"


def _change(other: Summary, best: Summary) -> str:
    """Return the values in which two cells differ: `img 416 instead of 640`."""
    before = dict(best.values)
    changed = [(name, value, before[name]) for name, value in other.values if value != before[name]]
    if len(changed) == 1:
        name, value, old = changed[0]
        return f"{name} {value} instead of {old}"
    new, old_values = (", ".join(f"{name} {row[index]}" for name, *row in changed) for index in (0, 1))
    return f"{new} instead of {old_values}"


def _values(summary: Summary) -> str:
    return ", ".join(f"{name} {value}" for name, value in summary.values)
