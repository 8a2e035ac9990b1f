"""Rule `scheduler-per-micro-batch`: the learning rate changes in every iteration, the weights only in every k-th."""

from __future__ import annotations

from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import EventKind
from ...sources import Document
from ._groups import find_groups, find_micro_loops


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for group in find_groups(document):
        for event in group.loop.of(EventKind.SCHEDULER_STEP):
            # With an argument it sets the rate of a point in time, which can lie between two steps.
            if group.runs_always(code, event) and not event.call.args:
                message = (
                    f"{code.source(event.call)} runs for every micro-batch, the optimizer's step only under "
                    f"`if {code.source(group.accumulation.test)}`: move it behind the step"
                )
                yield Problem(code.span(event.call), message)
    for loop, node in find_micro_loops(document):
        for event in loop.of(EventKind.SCHEDULER_STEP):
            is_each = event.subject == code.name(getattr(node, "target", None))  # `for scheduler in schedulers`
            if code.is_inside(event.call, node) and not event.call.args and not is_each:
                message = (
                    f"{code.source(event.call)} runs for every micro-batch, the optimizer's step only behind this "
                    "loop: move it behind the step"
                )
                yield Problem(code.span(event.call), message)


SCHEDULER_PER_MICRO_BATCH = Rule(
    "scheduler-per-micro-batch",
    RuleFamily.ACCUMULATION,
    "The scheduler steps for every micro-batch",
    _check,
    triggers=("backward",),
)
