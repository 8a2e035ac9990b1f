"""Rule `clip-without-unscale`: gradients are clipped while they are still multiplied by the scaler's factor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._insertion import LineInserter
from ..._problem import Edit, Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Event, EventKind, LocalCalls, branches_around, events_in, walk
from ...sources import Document
from ..precision._scaled_regions import ScaledRegion, scaled_regions

_OWN_CLIPS = ("accelerator", "fabric", "trainer", "engine")


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for region in (_with_functions(code, document.calls, item) for item in scaled_regions(document)):
        for clip in region.of(EventKind.CLIP):
            if _handles_scale(code, clip):
                continue
            step = next((event for event in region.after(code, clip, EventKind.STEP) if event.scaler), None)
            backwards = list(region.before(code, clip, EventKind.BACKWARD))
            is_plain = bool(backwards) and not any(event.scaler for event in backwards)
            if step is None or is_plain or _is_unscaled(code, region, clip) or _is_late(region, clip):
                continue
            message = (
                f"{code.source(clip.call)} clips gradients that are still multiplied by the scaler's factor: call "
                f"{step.scaler}.unscale_({step.subject or 'optimizer'}) before it"
            )
            yield Problem(code.span(clip.call), message, _edits(document, region, clip, step))
        yield from _check_clamps(code, region)


def _with_functions(code: Code, calls: LocalCalls, region: ScaledRegion) -> ScaledRegion:
    """Return a region with the calls of functions of the document that clip, as if they were clips."""
    clips = []
    for node in walk(region.node):
        function = calls.function(node) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and function is not None and not code.is_inside(node, function):
            kinds = {event.kind for event in events_in(code, function)}
            if EventKind.CLIP in kinds and not kinds & {EventKind.UNSCALE, EventKind.STEP, EventKind.BACKWARD}:
                clips.append(Event(EventKind.CLIP, node, ""))
    if not clips:
        return region
    clips = [clip for clip in clips if region.node is not code.tree or code.piece(clip.call) == region.piece]
    events = sorted((*region.events, *clips), key=lambda event: (event.call.lineno, event.call.col_offset))
    return ScaledRegion(region.node, tuple(events), region.piece)


def _check_clamps(code: Code, region: ScaledRegion) -> Iterator[Problem]:
    """Check gradients that are clipped by hand: `p.grad.clamp_(-1, 1)`."""
    scaled = [event for event in region.of(EventKind.BACKWARD) if event.scaler]
    steps = [event for event in region.of(EventKind.STEP) if event.scaler]
    if not scaled or not steps or region.of(EventKind.UNSCALE):
        return
    for node in walk(region.node):
        func = node.func if isinstance(node, ast.Call) else None
        if not isinstance(func, ast.Attribute) or func.attr not in {"clamp_", "clip_"}:
            continue
        names = {item.attr for item in ast.walk(func.value) if isinstance(item, ast.Attribute)}
        if "grad" in names and scaled[0].call.lineno < func.lineno < steps[-1].call.lineno:
            message = (
                f"{code.source(node)} clips gradients that are still multiplied by the scaler's factor: call "
                f"{steps[-1].scaler}.unscale_({steps[-1].subject or 'optimizer'}) before the loop"
            )
            yield Problem(code.span(node), message)


def _handles_scale(code: Code, clip: Event) -> bool:
    """Return True if a framework's method clips, which knows the scale."""
    name = (code.name(clip.call.func) or "").lower()
    return name.startswith("self.clip") or any(owner in name for owner in _OWN_CLIPS)


def _is_unscaled(code: Code, region: ScaledRegion, clip: Event) -> bool:
    """Return True if gradients are unscaled before the clip, or the scale is divided out by hand."""
    if any(not _is_stepped(code, region, clip, unscale) for unscale in region.before(code, clip, EventKind.UNSCALE)):
        return True
    nodes = (*clip.call.args, *(item.value for item in clip.call.keywords))
    return any(
        isinstance(node, ast.Attribute) and node.attr in {"get_scale", "_scale"}
        for value in nodes
        for node in ast.walk(value)
    )


def _is_stepped(code: Code, region: ScaledRegion, clip: Event, unscale: Event) -> bool:
    """Return True if the optimizer whose gradients were unscaled stepped before the clip, which is for another one."""
    return any(
        event.subject == unscale.subject and region.events.index(event) > region.events.index(unscale)
        for event in region.before(code, clip, EventKind.STEP)
        if event.subject
    )


def _is_late(region: ScaledRegion, clip: Event) -> bool:
    """Return True if the clip comes after the step, as in `unscale-after-step`."""
    nearest = next(
        (
            event
            for event in reversed(region.events[: region.events.index(clip)])
            if event.kind in {EventKind.BACKWARD, EventKind.STEP}
        ),
        None,
    )
    return nearest is not None and nearest.kind is EventKind.STEP


def _edits(document: Document, region: ScaledRegion, clip: Event, step: Event) -> tuple[Edit, ...]:
    """Return the insertion, only where it runs once per step and the optimizer has a name."""
    code = document.code
    steps = [event for event in region.of(EventKind.STEP) if event.scaler]
    clips = region.of(EventKind.CLIP)
    is_same_loop = next(code.loops_around(clip.call), None) is next(code.loops_around(step.call), None)
    if len(steps) != 1 or len(clips) != 1 or not step.subject or not is_same_loop:
        return ()
    around_step, around_clip = (set(branches_around(code, event.call, region.node)) for event in (step, clip))
    if not around_step <= around_clip:
        return ()  # it would run more often than the step
    statement = code.statement(clip.call)
    if not isinstance(statement, (ast.Expr, ast.Assign)):
        return ()
    return LineInserter(code, document.sources).before(statement, f"{step.scaler}.unscale_({step.subject})")


CLIP_WITHOUT_UNSCALE = Rule(
    "clip-without-unscale",
    RuleFamily.ACCUMULATION,
    "Scaled gradients are clipped",
    _check,
    triggers=("clip_grad", "clamp_", "clip_("),
    is_fixable=True,
)
