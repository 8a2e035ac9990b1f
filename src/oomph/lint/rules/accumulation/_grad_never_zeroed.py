"""Rule `grad-never-zeroed`: the gradients of all earlier steps add up."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._insertion import LineInserter
from ..._problem import Edit, Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Event, EventKind, TrainingLoop, last_part, walk
from ...sources import Document
from ._groups import is_loop

_ZEROING = {"zero_grad", "zero_grads", "clear_grad", "zero_grad_buffer", "set_grads_to_none"}


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for loop in document.loops:
        steps = loop.of(EventKind.STEP)
        if not steps or not _runs_repeatedly(code, loop) or _may_zero(code, loop):
            continue
        for event in _unzeroed(loop):
            if _is_new(code, loop, event):
                continue
            place, edits = _correction(document, loop, event)
            message = (
                f"the gradients of {event.subject or 'the optimizer'} are never zeroed, so that each step adds those "
                f"of all earlier ones: call {event.subject or 'optimizer'}.zero_grad() {place}"
            )
            yield Problem(code.span(event.call), message, edits)


def _is_new(code: Code, loop: TrainingLoop, event: Event) -> bool:
    """Return True if the loop makes a new optimizer in each iteration, as a test or a benchmark does."""
    assignments = code.assignments(event.subject, event.call) if event.subject else []
    return is_loop(loop.update) and any(
        item.kind == "=" and code.is_inside(item.statement, loop.update) for item in assignments
    )


def _unzeroed(loop: TrainingLoop) -> Iterator[Event]:
    """Yield the steps of optimizers whose gradients nothing zeroes, each optimizer once."""
    zeroed = {event.subject for event in loop.of(EventKind.ZERO_GRAD)}
    steps = {event.subject: event for event in reversed(loop.of(EventKind.STEP))}
    if not zeroed:
        yield from steps.values()
    elif zeroed <= steps.keys() and "" not in steps:
        yield from (event for subject, event in steps.items() if subject not in zeroed)


def _runs_repeatedly(code: Code, loop: TrainingLoop) -> bool:
    """Return True if backward and step run in a loop, or in a function that a loop of this document calls."""
    if is_loop(loop.update):
        return True
    function = loop.node
    if not isinstance(function, ast.FunctionDef):
        return False
    calls = (call for call in code.nodes(ast.Call) if last_part(code.name(call.func)) == function.name)
    return any(next(code.loops_around(call), None) is not None for call in calls)


def _may_zero(code: Code, loop: TrainingLoop) -> bool:
    """Return True if gradients are zeroed by other means, or where this analysis can't see it."""
    region: ast.AST = loop.update
    optimizers = {event.subject for event in loop.of(EventKind.STEP)} - {""}
    events = {event.call for event in loop.events}
    has_zero_event = bool(loop.of(EventKind.ZERO_GRAD))
    for node in walk(region, into_functions=True):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return True
        # `optimizer.zero_grad` without parentheses does nothing.
        is_zeroing = isinstance(node, ast.Attribute) and node.attr in _ZEROING
        if is_zeroing and not has_zero_event and not isinstance(code.parent(node), ast.Expr):
            return True
        if isinstance(node, ast.Call) and node not in events and _passes(code, node, optimizers):
            return True
    return not has_zero_event and _zeroes_elsewhere(code, loop, region)


def _passes(code: Code, call: ast.Call, optimizers: set[str]) -> bool:
    """Return True if a call gets an optimizer or the scaler's optimizer, and may zero its gradients."""
    values = (*call.args, *(item.value for item in call.keywords))
    names = {name for value in values if (name := code.name(value))}
    return bool(names & optimizers) and last_part(code.name(call.func)) not in {"scale", "unscale_", "print", "step"}


def _zeroes_elsewhere(code: Code, loop: TrainingLoop, region: ast.AST) -> bool:
    """Return True if a function that the region calls, or the caller of its function, zeroes gradients."""
    names = {function.name for function in code.functions if _zeroes(function)}
    used = (node for node in walk(region) if isinstance(node, (ast.Name, ast.Attribute)))
    if names and any(last_part(code.name(node)) in names for node in used):
        return True
    if not isinstance(loop.update, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    function = loop.update.name
    callers = (call for call in code.nodes(ast.Call) if last_part(code.name(call.func)) == function)
    return any(_zeroes(code.function(call) or code.tree) for call in callers)


def _zeroes(region: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in _ZEROING for node in walk(region))


def _correction(document: Document, loop: TrainingLoop, step: Event) -> tuple[str, tuple[Edit, ...]]:
    """Return where the gradients should be zeroed, in words and as edits.

    With several optimizers, as in a GAN, the backward of another loss may leave gradients behind the step, so they must
    be zeroed before their own backward.
    """
    code, inserter = document.code, LineInserter(document.code, document.sources)
    statement = code.statement(step.call)
    is_plain = bool(step.subject) and isinstance(statement, ast.Expr) and statement.value is step.call
    text = f"{step.subject}.zero_grad()"
    if not _has_others(document, loop):
        return f"after {code.source(step.call)}", inserter.after(statement, text) if is_plain else ()
    backward = _own_backward(loop, step)
    start = code.statement(backward.call) if backward is not None else None
    if backward is None or start is None or code.parent(start) is not code.parent(statement):
        return "before its next backward", ()
    return f"before {code.source(backward.call)}", inserter.before(start, text) if is_plain else ()


def _has_others(document: Document, loop: TrainingLoop) -> bool:
    """Return True if other optimizers step in the same loop, or in functions that may run between two of its steps."""
    code = document.code
    subjects = {event.subject for event in loop.of(EventKind.STEP)}
    for other in document.loops:
        if not is_loop(other.update) and code.class_of(other.update) is code.class_of(loop.update):
            subjects |= {event.subject for event in other.of(EventKind.STEP) if not _is_local(code, event)}
    return len(subjects) > 1


def _is_local(code: Code, step: Event) -> bool:
    """Return True if a function makes the optimizer that it steps."""
    function = code.function(step.call)
    return function is not None and any(
        item.kind == "=" and code.is_inside(item.statement, function)
        for item in (code.assignments(step.subject, step.call) if not step.subject.startswith("self.") else ())
    )


def _own_backward(loop: TrainingLoop, step: Event) -> Event | None:
    """Return the first backward since the step of another optimizer."""
    own: Event | None = None
    for event in reversed(loop.events[: loop.events.index(step)]):
        if event.kind is EventKind.STEP:
            break
        own = event if event.kind is EventKind.BACKWARD else own
    return own


GRAD_NEVER_ZEROED = Rule(
    "grad-never-zeroed",
    RuleFamily.ACCUMULATION,
    "Gradients are never zeroed",
    _check,
    triggers=("backward",),
    is_fixable=True,
)
