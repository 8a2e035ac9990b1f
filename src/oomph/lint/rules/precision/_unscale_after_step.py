"""Rule `unscale-after-step`: gradients are unscaled when the step has used them already."""

from __future__ import annotations

from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Event, EventKind, are_exclusive
from ...sources import Document
from ._scaled_regions import ScaledRegion, scaled_regions


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for region in scaled_regions(document):
        for unscale in region.of(EventKind.UNSCALE):
            step = _step_before(code, region, unscale)
            if step is not None:
                message = (
                    f"{code.source(unscale.call)} comes after {code.source(step.call)}, which has used the gradients "
                    "already: call it between backward and the step"
                )
                yield Problem(code.span(unscale.call), message)


def _step_before(code: Code, region: ScaledRegion, unscale: Event) -> Event | None:
    """Return the step of the same optimizer that precedes an unscale without a backward in between."""
    for event in reversed(region.events[: region.events.index(unscale)]):
        if are_exclusive(code, event.call, unscale.call):
            continue
        if event.kind is EventKind.BACKWARD:
            return None
        if event.kind is EventKind.STEP and event.subject == unscale.subject and event.scaler == unscale.scaler:
            is_stepped_later = any(
                step.subject == unscale.subject for step in region.after(code, unscale, EventKind.STEP)
            )
            return None if is_stepped_later else event
    return None


UNSCALE_AFTER_STEP = Rule(
    "unscale-after-step",
    RuleFamily.PRECISION,
    "Gradients are unscaled after the step",
    _check,
    triggers=("unscale_",),
)
