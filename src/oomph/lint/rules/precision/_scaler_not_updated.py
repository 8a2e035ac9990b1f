"""Rule `scaler-not-updated`: the scaler steps, but its factor never changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._insertion import LineInserter
from ..._problem import Edit, Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Event, EventKind, branches_around, last_part, walk
from ...sources import Document
from ._scaled_regions import ScaledRegion, scaled_regions


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for region in scaled_regions(document):
        steps = {event.scaler: event for event in region.of(EventKind.STEP) if event.scaler}
        for scaler, step in steps.items():
            if not _scales(region, scaler) or _updates(code, region, step, scaler):
                continue
            message = (
                f"{scaler}.update() is missing after {code.source(step.call)}, so that the next step fails and the "
                "scale is never adapted: call it once per iteration, after all steps"
            )
            yield Problem(code.span(step.call), message, _edits(document, region, step, scaler))


def _scales(region: ScaledRegion, scaler: str) -> bool:
    """Return True if backward runs here too, so that the whole use of the scaler is visible."""
    return any(event.scaler == scaler for event in region.of(EventKind.BACKWARD))


def _updates(code: Code, region: ScaledRegion, step: Event, scaler: str) -> bool:
    """Return True if update() is called in the function or class, or the scaler is given to other code."""
    owner: ast.AST = code.function(step.call) or code.tree
    if scaler.startswith("self."):
        owner = code.class_of(step.call) or owner
    for node in walk(owner, into_functions=True):
        if not isinstance(node, ast.Call) or (owner is code.tree and code.piece(node) != region.piece):
            continue
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in {"update", "_update"} and code.name(func.value) == scaler:
            return True
        arguments = (*node.args, *(item.value for item in node.keywords))
        is_given = any(code.name(value) == scaler for value in arguments)
        if is_given and last_part(code.call_name(node)) not in {"print", "isinstance", "getattr", "hasattr"}:
            return True
    return False


def _edits(document: Document, region: ScaledRegion, step: Event, scaler: str) -> tuple[Edit, ...]:
    """Return the insertion after the last step, if that one runs whenever another does."""
    code = document.code
    statement = code.statement(step.call)
    last = set(branches_around(code, step.call, region.node))
    steps = (event for event in region.of(EventKind.STEP) if event.scaler == scaler)
    is_always = all(last <= set(branches_around(code, event.call, region.node)) for event in steps)
    if not is_always or not isinstance(statement, (ast.Expr, ast.Assign)):
        return ()
    return LineInserter(code, document.sources).after(statement, f"{scaler}.update()")


SCALER_NOT_UPDATED = Rule(
    "scaler-not-updated",
    RuleFamily.PRECISION,
    "The gradient scaler is never updated",
    _check,
    triggers=(".step(",),
    is_fixable=True,
)
