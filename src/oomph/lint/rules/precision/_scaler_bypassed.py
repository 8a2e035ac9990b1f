"""Rule `scaler-bypassed`: scaled gradients are applied directly, or the loss of a scaled step isn't scaled."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Event, EventKind, TrainingLoop, are_exclusive, last_part
from ...sources import Document
from ._autocast import Precision, autocast_precision, enclosing_autocast, region_precisions
from ._scaled_regions import ScaledRegion, scaled_regions, scaler_creations

# Code that looks for inf and NaN itself.
_CHECKS = re.compile(r"found_inf|isfinite|isinf|isnan|error_if_nonfinite|has_inf")


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for region in scaled_regions(document):
        yield from _check_backwards(code, region)
        yield from _check_steps(code, region)
    yield from _check_unused(document)


def _check_steps(code: Code, region: ScaledRegion) -> Iterator[Problem]:
    """Check optimizers that step directly after a scaled backward."""
    for step in region.of(EventKind.STEP):
        if step.scaler is not None or _is_optional(code, region, step):
            continue
        backward = next(region.before(code, step, EventKind.BACKWARD), None)
        if backward is None or backward.scaler is None:
            continue
        unscaled = [event for event in region.before(code, step, EventKind.UNSCALE) if event.subject == step.subject]
        if unscaled:
            if not _CHECKS.search(ast.unparse(region.node)):
                message = (
                    f"{code.source(step.call)} applies gradients even if they are inf or NaN: call "
                    f"{backward.scaler}.step({step.subject or 'optimizer'}), which skips such steps"
                )
                yield Problem(code.span(step.call), message)
            continue
        message = (
            f"{code.source(step.call)} applies gradients that {backward.scaler} has scaled: call "
            f"{backward.scaler}.step({step.subject or 'optimizer'})"
        )
        yield Problem(code.span(step.call), message)


def _check_backwards(code: Code, region: ScaledRegion) -> Iterator[Problem]:
    """Check losses whose gradients a scaler applies, or that autocast computes beside scaled ones."""
    for backward in region.of(EventKind.BACKWARD):
        if backward.scaler is not None or _is_framework(code, backward) or _is_optional(code, region, backward):
            continue
        step = next(region.after(code, backward, EventKind.STEP), None)
        if step is None:
            continue
        scaled = [event for event in region.of(EventKind.BACKWARD) if event.scaler]
        is_applied = step.scaler is not None and not _is_scaled_too(code, region, backward, step)
        is_beside = step.scaler is None and bool(scaled) and _is_half(code, region, backward)
        if is_applied or is_beside:
            scaler = step.scaler or scaled[0].scaler
            message = (
                f"{code.source(backward.call)} doesn't scale the loss, so that small gradients become 0 in float16: "
                f"call {scaler}.scale({backward.subject or 'loss'}).backward()"
            )
            yield Problem(code.span(backward.call), message)


def _check_unused(document: Document) -> Iterator[Problem]:
    """Check loops under float16 autocast beside a scaler that is created but never used."""
    code = document.code
    for creation in scaler_creations(code):
        parent = code.parent(creation)
        name = code.name(parent.targets[0]) if isinstance(parent, ast.Assign) else None
        if name is None or "." in name or _is_used(code, name, code.function(creation)):
            continue
        for loop in document.loops:
            if code.function(loop.node) is code.function(creation):
                yield from _unscaled(code, loop, name)


def _is_used(code: Code, name: str, function: ast.AST | None) -> bool:
    """Return True if a function, or anything in the document for None, reads a name."""
    names = (node for node in code.nodes(ast.Name) if node.id == name and isinstance(node.ctx, ast.Load))
    return any(function is None or code.is_inside(node, function) for node in names)


def _unscaled(code: Code, loop: TrainingLoop, scaler: str) -> Iterator[Problem]:
    if region_precisions(code, loop.node) != {Precision.HALF} or not loop.of(EventKind.STEP):
        return
    for event in loop.of(EventKind.BACKWARD):
        if not _is_framework(code, event):
            message = (
                f"{scaler} is created but never used: call {scaler}.scale({event.subject or 'loss'}).backward(), "
                f"{scaler}.step(optimizer) and {scaler}.update()"
            )
            yield Problem(code.span(event.call), message)


def _is_scaled_too(code: Code, region: ScaledRegion, backward: Event, step: Event) -> bool:
    """Return True if another, scaled backward runs between this one and the step, which then is about that one."""
    first, last = region.events.index(backward), region.events.index(step)
    return any(
        event.kind is EventKind.BACKWARD and event.scaler and not are_exclusive(code, event.call, step.call)
        for event in region.events[first + 1 : last]
    )


def _is_half(code: Code, region: ScaledRegion, backward: Event) -> bool:
    """Return True if the loss is computed under autocast in float16."""
    if not backward.subject:
        return False
    statements = [
        item.statement
        for item in code.assignments(backward.subject, backward.call)
        if item.kind == "=" and code.is_inside(item.statement, region.node)
    ]
    blocks = [enclosing_autocast(code, statement) for statement in statements]
    return bool(blocks) and all(
        block is not None and autocast_precision(code, block) is Precision.HALF for block in blocks
    )


def _is_framework(code: Code, event: Event) -> bool:
    """Return True for `accelerator.backward(loss)`, which has its own scaler."""
    func = event.call.func
    if not isinstance(func, ast.Attribute):
        return False
    return func.attr == "manual_backward" or (bool(event.call.args) and "loss" not in last_part(code.name(func.value)))


def _is_optional(code: Code, region: ScaledRegion, event: Event) -> bool:
    """Return True if a scaled form of the same event runs instead of it, in another branch."""
    return any(
        other.kind is event.kind and other.scaler is not None and are_exclusive(code, other.call, event.call)
        for other in region.events
    )


SCALER_BYPASSED = Rule(
    "scaler-bypassed",
    RuleFamily.PRECISION,
    "A gradient scaler is used for backward or the step, but not for both",
    _check,
    triggers=("caler",),
)
