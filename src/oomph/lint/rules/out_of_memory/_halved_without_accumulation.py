"""Rule `halved-without-accumulation`: the batch shrinks after an out-of-memory error, and nothing makes up for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, EventKind, events_in, is_half, is_halving, last_part, walk
from ...sources import Document
from ._handlers import memory_handlers

# Names that show that the rest of the batch isn't lost, or that the learning rate follows.
_COMPENSATION = re.compile(r"accum|micro|chunk|\bsplit|n_parts|num_parts|steps_per_update", re.IGNORECASE)
_LEARNING_RATE = re.compile(r"\b(?:lr|learning_rate)\s*[*/]=|\blr = lr\b|\[['\"]lr['\"]\]\s*[*/]?=")
_SEARCH = re.compile(
    r"find|search|probe|largest|biggest|max_batch|maximum|auto_?batch|autobatch|fits(?:$|_)|(?:will|does|to|can)_fit|fit_(?:in|on)_|estimate|tune|benchmark|measure",
    re.IGNORECASE,
)
_TRAINING = re.compile(r"train|(?:^|_)fit|epoch", re.IGNORECASE)
_NOT_A_BATCH = re.compile(
    r"img|image|imgsz|res|crop|width|height|seq|len|dim|hidden|tile|window|block|micro|chunk|kernel|worker"
)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    reported: set[ast.stmt] = set()
    for block, handler in memory_handlers(document):
        region = _region(code, block)
        for call in _partial_steps(document, block, handler):
            if code.statement(call) not in reported:
                reported.add(code.statement(call))
                message = (
                    f"{code.source(call)} steps the optimizer on a part of the batch, so that one batch makes several "
                    "small updates: add up the gradients of the parts and step once"
                )
                yield Problem(code.span(call), message)
                break
        if _compensates(code, region, block):
            continue
        for statement in _reactions(code, block, handler):
            for node in walk(statement):
                if isinstance(node, ast.stmt) and node not in reported and _is_loss_of_samples(code, node, region):
                    reported.add(node)
                    yield Problem(code.span(node), _message(code, node))


def _partial_steps(document: Document, block: ast.Try, handler: ast.ExceptHandler) -> Iterator[ast.Call]:
    """Yield the calls after an error that run a whole training step, with the optimizer's, on a part of a batch."""
    code, calls = document.code, document.calls
    for statement in _reactions(code, block, handler):
        for call in walk(statement):
            function = calls.function(call) if isinstance(call, ast.Call) else None
            if not isinstance(call, ast.Call) or function is None or function is code.function(block):
                continue
            kinds = {event.kind for event in events_in(code, function)}
            if {EventKind.BACKWARD, EventKind.STEP} <= kinds and _takes_part(code, call):
                yield call


def _takes_part(code: Code, call: ast.Call) -> bool:
    """Return True if an argument is a slice, or a part that a loop over `x.chunk(2)` gives."""
    if any(isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Slice) for item in call.args):
        return True
    names = {item.id for item in call.args if isinstance(item, ast.Name)}
    for loop in code.loops_around(call):
        if isinstance(loop, ast.For) and names & {item.id for item in walk(loop.target) if isinstance(item, ast.Name)}:
            return re.search(r"chunk|split|\[[^\]]*:", ast.unparse(loop.iter)) is not None
    return any(
        isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice)
        for item in call.args
        if isinstance(item, ast.Name)
        for value in code.values(item)
    )


def _message(code: Code, node: ast.stmt) -> str:
    return (
        f"`{code.source(node)}` makes the effective batch smaller, and the training another one: run the rest as "
        "further micro-batches and accumulate their gradients"
    )


def _region(code: Code, block: ast.Try) -> ast.AST:
    """Return the function around a block; at the top level the outermost statement."""
    function = code.function(block)
    if function is not None:
        return function
    outer: ast.AST = block
    for ancestor in code.ancestors(block):
        if isinstance(ancestor, (ast.Module, ast.ClassDef)):
            break
        outer = ancestor
    return outer


def _compensates(code: Code, region: ast.AST, block: ast.Try) -> bool:
    text = ast.unparse(region)
    if _COMPENSATION.search(text) or _LEARNING_RATE.search(text):
        return True
    function = code.function(block)
    names = [function.name] if function is not None else []
    return any(_SEARCH.search(name) for name in names) or _is_probe(code, block)


def _is_probe(code: Code, block: ast.Try) -> bool:
    """Return True if the block only tries a batch: it makes its own input and changes no weights."""
    calls = [node for statement in block.body for node in walk(statement) if isinstance(node, ast.Call)]
    names = {
        call.func.attr if isinstance(call.func, ast.Attribute) else last_part(code.name(call.func)) for call in calls
    }
    return bool(names & {"randn", "rand", "zeros", "ones", "randint", "empty"}) and not names & {"step"}


def _reactions(code: Code, block: ast.Try, handler: ast.ExceptHandler) -> Iterator[ast.stmt]:
    """Yield the statements that run because of the error: of the handler, under its flag, or behind the block."""
    yield from handler.body
    flags = {
        name
        for statement in handler.body
        for node in walk(statement)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if (name := code.name(target))
    }
    function = code.function(block)
    for branch in code.nodes(ast.If):
        is_behind = branch.lineno > block.lineno and not code.is_inside(branch, block)
        if is_behind and code.function(branch) is function and _reads(code, branch.test, flags):
            is_negated = isinstance(branch.test, ast.UnaryOp) and isinstance(branch.test.op, ast.Not)
            yield from (branch.orelse if is_negated else branch.body)
            if isinstance(branch.body[-1], (ast.Break, ast.Return, ast.Continue)):  # `if not failed`, `if is_done`
                yield from _following(code, branch)
    yield from _after(code, block)


def _reads(code: Code, node: ast.AST, names: set[str]) -> bool:
    return any(code.name(item) in names for item in walk(node) if isinstance(item, (ast.Name, ast.Attribute)))


def _after(code: Code, block: ast.Try) -> list[ast.stmt]:
    """Return the statements behind a block that leaves its loop or function when it succeeds."""
    last = (block.orelse or block.body)[-1]
    return _following(code, block) if isinstance(last, (ast.Break, ast.Return)) else []


def _following(code: Code, statement: ast.stmt) -> list[ast.stmt]:
    """Return the statements behind another one in its block."""
    body = getattr(code.parent(statement), "body", [])
    return list(body[body.index(statement) + 1 :]) if statement in body else []


def _is_loss_of_samples(code: Code, node: ast.stmt, region: ast.AST) -> bool:
    if is_halving(code, node):
        target = (
            node.target
            if isinstance(node, ast.AugAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        name = last_part(code.name(target)) or ast.unparse(target) if target is not None else ""
        return not _NOT_A_BATCH.search(name) and not _is_part_used(region)
    return _is_first_half(node, region) or _is_call_with_half(code, node)


def _is_call_with_half(code: Code, node: ast.stmt) -> bool:
    """Return True for a training that starts again with a smaller batch: `fit(bs // 2)`."""
    call = node.value if isinstance(node, (ast.Expr, ast.Return, ast.Assign)) else None
    if not isinstance(call, ast.Call) or not _TRAINING.search(last_part(code.name(call.func))):
        return False
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(is_half(code, value) or _is_clamped_half(code, value) for value in values)


def _is_clamped_half(code: Code, node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and code.call_name(node) == "max" and any(is_half(code, item) for item in node.args)
    )


def _is_first_half(node: ast.stmt, region: ast.AST) -> bool:
    """Return True for `half = batch[: n // 2]`, or the middle that only such slices use."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        is_middle = isinstance(node.value, ast.BinOp) and isinstance(node.value.op, (ast.FloorDiv, ast.RShift))
        if is_middle and any(_ends_with(item, node.targets[0].id) for item in walk(region)):
            return not _is_part_used(region)
    if isinstance(node, (ast.Assign, ast.Expr, ast.Return, ast.AugAssign)) and node.value is not None:
        has_half = any(isinstance(item, ast.Subscript) and _is_half_slice(item) for item in walk(node.value))
        return has_half and not _is_part_used(region)
    return False


def _ends_with(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Slice)
        and node.slice.lower is None
        and isinstance(node.slice.upper, ast.Name)
        and node.slice.upper.id == name
    )


def _is_half_slice(node: ast.Subscript) -> bool:
    part = node.slice
    if not isinstance(part, ast.Slice) or part.lower is not None:
        return False
    return isinstance(part.upper, ast.BinOp) and isinstance(part.upper.op, (ast.FloorDiv, ast.RShift))


def _is_part_used(region: ast.AST) -> bool:
    """Return True if the second half is used as well: `x[m:]`, or a loop over offsets."""
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Slice)
        and node.slice.lower is not None
        and not isinstance(node.slice.lower, (ast.Constant, ast.UnaryOp))
        for node in walk(region)
    )


HALVED_WITHOUT_ACCUMULATION = Rule(
    "halved-without-accumulation",
    RuleFamily.OUT_OF_MEMORY,
    "The effective batch shrinks after an out-of-memory error",
    _check,
    triggers=("except",),
)
