"""Rule `grad-zeroed-while-accumulating`: zero_grad in every iteration, step only in every k-th."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._insertion import LineInserter
from ..._problem import Edit, Problem
from ..._removal import remove_statements
from ..._rule import Rule, RuleFamily
from ...analysis import (
    Code,
    Event,
    EventKind,
    Function,
    LocalCalls,
    TrainingLoop,
    branches_around,
    events_in,
    is_conditional,
    walk,
)
from ...sources import Document
from ._groups import Group, find_groups, find_micro_loops


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for group in find_groups(document):
        for event in group.loop.of(EventKind.ZERO_GRAD):
            if not group.runs_always(code, event) or _is_other(group.loop, event):
                continue
            message = (
                f"{code.source(event.call)} runs in every iteration and deletes the gradients that the step "
                f"under `if {code.source(group.accumulation.test)}` should add up: call it only after that step"
            )
            yield Problem(code.span(event.call), message, _edits(document, group, event))
        yield from _check_other_means(code, document.calls, group)
    for loop, node in find_micro_loops(document):
        for event in loop.of(EventKind.ZERO_GRAD):
            is_inside = code.is_inside(event.call, node) and not is_conditional(code, event.call, node)
            if is_inside and not _is_other(loop, event):
                message = (
                    f"{code.source(event.call)} runs for every micro-batch, so that the step behind this loop sees "
                    "the gradients of the last one only: call it before the loop"
                )
                yield Problem(code.span(event.call), message)


def _check_other_means(code: Code, calls: LocalCalls, group: Group) -> Iterator[Problem]:
    """Check gradients that a function of the document zeroes, or that are set to None one by one."""
    if len({step.subject for step in group.loop.of(EventKind.STEP)}) > 1:
        return
    for node in walk(group.node):
        if not _is_in_every_pass(code, group, node):
            continue
        zeroing = _zeroed_by_hand(node)
        function = calls.function(node) if isinstance(node, ast.Call) else None
        if function is not None:
            zeroing = next(_zeroing_calls(code, function), None)
        if zeroing is not None:
            message = (
                f"{code.source(zeroing)} runs for every micro-batch and deletes the gradients that the step under "
                f"`if {code.source(group.accumulation.test)}` should add up: zero them only after that step"
            )
            yield Problem(code.span(zeroing), message)


def _is_in_every_pass(code: Code, group: Group, node: ast.AST) -> bool:
    """Return True if a node runs in every iteration; `if p.grad is not None` doesn't matter."""
    if group.accumulation.skips and getattr(node, "lineno", 0) > group.accumulation.branch.lineno:
        return False
    return all("grad" in ast.unparse(branch.test) for branch, _ in branches_around(code, node, group.node))


def _zeroed_by_hand(node: ast.AST) -> ast.AST | None:
    """Return the node if it is `p.grad = None` or `p.grad.zero_()`."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        is_none = isinstance(node.value, ast.Constant) and node.value.value is None
        return node if is_none and node.targets[0].attr == "grad" else None
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Attribute) and func.attr == "zero_" and ast.unparse(func.value).endswith(".grad"):
        return node
    return None


def _zeroing_calls(code: Code, function: Function) -> Iterator[ast.Call]:
    """Yield the calls of zero_grad that a function always makes; none if it also steps."""
    events = list(events_in(code, function))
    if not any(event.kind is EventKind.STEP for event in events):
        zeroing = (event.call for event in events if event.kind is EventKind.ZERO_GRAD)
        yield from (call for call in zeroing if not is_conditional(code, call, function))


def _is_other(loop: TrainingLoop, event: Event) -> bool:
    """Return True if the gradients are those of another optimizer than the one that steps."""
    steps = {step.subject for step in loop.of(EventKind.STEP)}
    return event.subject not in steps and len(steps) > 1


def _edits(document: Document, group: Group, event: Event) -> tuple[Edit, ...]:
    """Return the edits that move the call behind the step, or only remove it if there is one already."""
    code = document.code
    statement = code.statement(event.call)
    if not isinstance(statement, ast.Expr) or statement.value is not event.call:
        return ()
    (removal,) = remove_statements(code, document.sources, [statement])
    if any(_follows_step(code, group, other) for other in group.loop.of(EventKind.ZERO_GRAD)):
        return (removal,)
    steps = group.loop.of(EventKind.STEP)
    if len(steps) != 1 or removal.text:
        return ()
    step = code.statement(steps[0].call)
    if not isinstance(step, ast.Expr) or not code.is_inside(step, group.node):
        return ()
    insertion = LineInserter(code, document.sources).after(step, ast.unparse(statement))
    return (removal, *insertion) if insertion else ()


def _follows_step(code: Code, group: Group, event: Event) -> bool:
    branch = group.accumulation.branch
    steps = [step for step in group.loop.of(EventKind.STEP) if step.call.lineno <= event.call.lineno]
    is_guarded = code.is_inside(event.call, branch) or (
        group.accumulation.skips and event.call.lineno > branch.lineno and code.is_inside(event.call, group.node)
    )
    return bool(steps) and is_guarded


GRAD_ZEROED_WHILE_ACCUMULATING = Rule(
    "grad-zeroed-while-accumulating",
    RuleFamily.ACCUMULATION,
    "Gradients are zeroed in every iteration although they should add up",
    _check,
    triggers=("zero_grad", ".grad"),
    is_fixable=True,
)
