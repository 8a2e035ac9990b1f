"""Rule `loss-not-divided`: gradients of a mean loss are added up over a group without dividing by its size."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Edit, Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Event, EventKind, TrainingLoop, is_accelerator, last_part, walk
from ...sources import Document
from ._counter import read_counter
from ._groups import find_groups, find_micro_loops
from ._loss_scale import LossScale, differentiated

_MICRO = re.compile(r"accum|micro|chunk", re.IGNORECASE)
_SPLITS = {"chunk", "split", "tensor_split", "split_batch", "islice"}
_FETCHING = {"next", "get_batch", "next_batch"}
_DIVIDING = re.compile(r"engine|deepspeed|guard|optim|wrapper|strategy", re.IGNORECASE)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for group in find_groups(document):
        every = group.accumulation.every
        is_counted = read_counter(code, group.accumulation) is not None or isinstance(
            group.accumulation.counter, (ast.Name, ast.Attribute)
        )
        if is_counted and code.constant(every) != 1:
            yield from _check_loop(document, group.loop, every)
    for loop, node in find_micro_loops(document):
        every = _micro_batches(code, node)
        if every is not None and code.constant(every) != 1:
            yield from _check_loop(document, loop, every)


def _check_loop(document: Document, loop: TrainingLoop, every: ast.expr | None) -> Iterator[Problem]:
    code = document.code
    if _is_compensated(code, loop, every):
        return
    scale = LossScale(code, loop.node, every)
    for event in loop.of(EventKind.BACKWARD):
        if not code.is_inside(event.call, loop.node) and not isinstance(loop.node, ast.Module):
            continue
        loss = differentiated(code, event)
        inner = LossScale(code, event.helper, every) if event.helper is not None else scale
        if _divides_itself(code, event) or inner.is_scaled(loss):
            continue
        size = code.source(every) if _is_simple(every) and every is not None else "their number"
        message = (
            f"the gradients of {code.source(loss)} add up over the micro-batches to more than those of one large "
            f"batch: divide the loss by {size} before backward"
        )
        edits = () if inner.is_guess else _edits(code, event, loss, every)
        yield Problem(code.span(event.call), message, edits)


def _micro_batches(code: Code, loop: ast.For | ast.AsyncFor | ast.While) -> ast.expr | None:
    """Return the number of micro-batches of an inner loop, or what it iterates over; None for other loops."""
    if isinstance(loop, ast.While):
        return None
    arguments = loop.iter.args if isinstance(loop.iter, ast.Call) else []
    if last_part(code.call_name(loop.iter)) in {"range", "trange"} and len(arguments) == 1:
        # Each pass fetches its own batch.
        is_micro = _MICRO.search(code.name(loop.target) or "") is not None
        is_fetched = any(last_part(code.call_name(node)) in _FETCHING for node in walk(loop))
        if is_micro or is_fetched:
            return arguments[0]
    for node in ast.walk(loop.iter):
        if isinstance(node, ast.Call) and last_part(code.name(node.func) or getattr(node.func, "attr", "")) in _SPLITS:
            return loop.iter
        if isinstance(node, (ast.Name, ast.Attribute)) and _MICRO.search(last_part(code.name(node))):
            is_range = last_part(code.call_name(loop.iter)) in {"range", "trange"}
            return node if is_range and node in getattr(loop.iter, "args", ()) else loop.iter
    return None


def _is_compensated(code: Code, loop: TrainingLoop, every: ast.expr | None) -> bool:
    """Return True if gradients are scaled after backward, or the learning rate is divided by the group's size."""
    if any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in walk(loop.update)):
        return True
    if not isinstance(every, (ast.Name, ast.Attribute)):
        return False
    size, here = ast.dump(every), {code.function(loop.node), None}
    rates = (
        item
        for call in code.nodes(ast.Call)
        for item in call.keywords
        if item.arg == "lr" and code.function(call) in here
    )
    return any(ast.dump(node) == size for rate in rates for node in ast.walk(rate.value))


def _divides_itself(code: Code, event: Event) -> bool:
    """Return True if backward of an engine or accelerator may divide by the group's size."""
    func = event.call.func
    name = code.name(func.value) if isinstance(func, ast.Attribute) else None
    if name is None or not event.call.args:
        return False
    if not isinstance(func, ast.Attribute) or not is_accelerator(code, func.value):
        return _DIVIDING.search(name) is not None
    values = [value for value in code.values(func.value) if isinstance(value, ast.Call)]
    return not values or any(
        item.arg is None or "accumulation" in item.arg for value in values for item in value.keywords
    )


def _is_simple(node: ast.expr | None) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) or (isinstance(node, ast.Constant) and node.value is not None)


def _edits(code: Code, event: Event, loss: ast.expr, every: ast.expr | None) -> tuple[Edit, ...]:
    """Return the edits that divide in place; none where the number of micro-batches has no name."""
    if every is None or not _is_simple(every) or event.helper is not None:
        return ()
    size = ast.unparse(every)
    is_argument = any(loss is item for call in _calls(event.call) for item in call.args)
    if isinstance(loss, ast.BinOp):
        return code.insert_before(loss, "("), code.insert_after(loss, f") / {size}")
    if not isinstance(loss, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return ()
    if is_argument:
        return (code.insert_after(loss, f" / {size}"),)
    return code.insert_before(loss, "("), code.insert_after(loss, f" / {size})")


def _calls(call: ast.Call) -> Iterator[ast.Call]:
    yield call
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        yield call.func.value


LOSS_NOT_DIVIDED = Rule(
    "loss-not-divided",
    RuleFamily.ACCUMULATION,
    "A mean loss is accumulated without dividing it",
    _check,
    triggers=("backward",),
    is_fixable=True,
)
