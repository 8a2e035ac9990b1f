"""Rule `loader-replaced`: a loader that is replaced before any use, or built anew in every epoch or step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, DataLoaderCall, is_model, is_optimizer, runs_model, walk
from ...sources import Document

_RETRY = re.compile(
    r"^(?:attempt|attempts|tries|try_|retry|retries|trial|fold|run|seed|rep|repeat|lr|bs|batch_size)\w*$"
)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for loader in document.loaders.all:
        statement = code.statement(loader.call)
        if (later := _replacement(document, loader, statement)) is not None:
            message = (
                f"this loader is replaced in line {code.span(later).line} before anything reads from it: remove one of "
                "the two"
            )
            yield Problem(code.span(statement), message)
        elif (loop := _rebuilding_loop(document, loader, loader.call)) is not None:
            message = (
                f"the DataLoader is built anew in every iteration of `{_header(code, loop)}` with the same "
                "settings, and starts its workers again: build it once, before the loop"
            )
            yield Problem(code.span(loader.call), message)
    yield from _rebuilt_by_function(document)


def _rebuilt_by_function(document: Document) -> Iterator[Problem]:
    """Yield calls of a function that builds a loader, in every epoch."""
    code = document.code
    builders = {code.function(loader.call) for loader in document.loaders.all} - {None}
    for call in code.nodes(ast.Call):
        if document.calls.function(call) not in builders or next(code.loops_around(call), None) is None:
            continue
        for loader in document.loaders.of(call)[:1]:
            if (loop := _rebuilding_loop(document, loader, call)) is not None:
                message = (
                    f"`{code.source(call)}` builds the same DataLoader anew in every iteration of "
                    f"`{_header(code, loop)}`: build it once, before the loop"
                )
                yield Problem(code.span(call), message)


def _header(code: Code, loop: ast.For | ast.While) -> str:
    if isinstance(loop, ast.While):
        return f"while {code.source(loop.test)}"
    return f"for {code.source(loop.target)} in {code.source(loop.iter)}"


def _replacement(document: Document, loader: DataLoaderCall, statement: ast.stmt) -> ast.stmt | None:
    """Return the statement that gives the loader's name another loader, if nothing uses the first one."""
    code = document.code
    if not (isinstance(statement, ast.Assign) and statement.value is loader.call and len(statement.targets) == 1):
        return None
    name = code.name(statement.targets[0])
    parent = code.parent(statement)
    block = next((body for body in _blocks(parent) if statement in body), [])
    if name is None or (name.startswith("self.") and code.function(statement) is None):
        return None
    for later in block[block.index(statement) + 1 :] if block else ():
        if code.piece(later) != code.piece(statement):
            return None
        is_same = isinstance(later, ast.Assign) and [code.name(target) for target in later.targets] == [name]
        if is_same and any(item.call is later.value for item in document.loaders.all):  # type: ignore[attr-defined]
            return None if _mentions(code, later.value, name) else later  # type: ignore[attr-defined]
        if _mentions(code, later, name) or isinstance(later, (ast.FunctionDef, ast.ClassDef)):
            return None
    return None


def _blocks(parent: ast.AST | None) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        if isinstance(block := getattr(parent, field, None), list):
            yield block


def _mentions(code: Code, node: ast.AST, name: str) -> bool:
    return any(code.name(part) == name for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute)))


def _rebuilding_loop(document: Document, loader: DataLoaderCall, call: ast.Call) -> ast.For | ast.While | None:
    """Return the epoch or step loop that builds the same loader in every iteration, by a call in it."""
    code = document.code
    for loop in code.loops_around(call):
        if isinstance(loop, ast.AsyncFor) or _is_conditional(code, call, loop):
            return None
        if not _trains_inside(document, loop, loader) or _is_new_run(code, loop):
            return None
        return None if _depends_on(code, call, loop) else loop
    return None


def _is_conditional(code: Code, call: ast.Call, loop: ast.AST) -> bool:
    for outer in code.ancestors(call):
        if outer is loop:
            return False
        if isinstance(outer, (ast.If, ast.IfExp, ast.Try, ast.ExceptHandler, ast.Lambda)):
            return True
    return False


def _trains_inside(document: Document, loop: ast.For | ast.While, loader: DataLoaderCall) -> bool:
    """Return True if a loop around the loader trains with it: the inner loop over the loader runs backward."""
    code = document.code
    for inner in code.nodes(ast.For):
        if (inner is loop or code.is_inside(inner, loop)) and loader in document.loaders.in_loop(inner):
            is_trained = any(item.node is inner or code.is_inside(item.node, inner) for item in document.loops)
            return is_trained or _is_epoch(loop) or any(runs_model(code, item) for item in inner.body)
    steps = {item.node for item in document.loops}
    return loop in steps or (_is_epoch(loop) and any(_passes(document, node, loader) for node in walk(loop)))


def _is_epoch(loop: ast.For | ast.While) -> bool:
    text = ast.unparse(loop.target) if isinstance(loop, ast.For) else ast.unparse(loop.test)
    return re.search(r"epoch|(?:^|\b)ep(?:$|\b)", text, re.IGNORECASE) is not None


def _passes(document: Document, node: ast.AST, loader: DataLoaderCall) -> bool:
    """Return True if a call has the loader as argument, such as `train(model, loader)`."""
    if not isinstance(node, ast.Call) or node is loader.call:
        return False
    return any(isinstance(item, ast.Name) and loader in document.loaders.of(item) for item in node.args) or any(
        item is loader.call for item in node.args
    )


def _is_new_run(code: Code, loop: ast.For | ast.While) -> bool:
    """Return True if each iteration is a training of its own (folds, seeds): it builds a model or optimizer."""
    if isinstance(loop, ast.For) and any(
        isinstance(part, ast.Name) and _RETRY.match(part.id) for part in ast.walk(loop.target)
    ):
        return True
    for node in walk(loop):
        if isinstance(node, ast.Try):
            return True
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            builds = is_optimizer(code, target) or (is_model(code, target) and isinstance(target, ast.Name))
            if builds:
                return True
    return False


def _depends_on(code: Code, call: ast.Call, loop: ast.For | ast.While) -> bool:
    """Return True if the loader's arguments change in the loop."""
    names = {name for part in ast.walk(call) if (name := code.name(part)) is not None}
    names |= {part.id for part in ast.walk(call) if isinstance(part, ast.Name)}
    for name in names:
        for item in code.assignments(name, call):
            if item.statement is loop or code.is_inside(item.statement, loop):
                return not _is_fixed_dataset(code, item.statement, loop)
    for node in walk(loop):
        # The dataset is changed: `dataset.set_epoch(epoch)`, `dataset.images = …`.
        func = node.func if isinstance(node, ast.Call) and not code.is_inside(node, call) else None
        is_method = isinstance(func, ast.Attribute) and code.name(func.value) in names
        if is_method and code.resolve(func).partition(".")[0] != "torch":
            return True
        if isinstance(node, ast.Assign) and any(
            isinstance(target, (ast.Attribute, ast.Subscript)) and code.name(target.value) in names
            for target in node.targets
        ):
            return True
    return False


def _is_fixed_dataset(code: Code, statement: ast.AST, loop: ast.For | ast.While) -> bool:
    """Return True if a dataset is built in the loop as well, from nothing that changes."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
        return False
    if "Dataset" not in code.call_name(statement.value):
        return False
    names = {part.id for part in ast.walk(statement.value) if isinstance(part, ast.Name)}
    return not any(
        item.statement is loop or code.is_inside(item.statement, loop)
        for name in names
        for item in code.assignments(name, statement)
    )


LOADER_REPLACED = Rule(
    "loader-replaced",
    RuleFamily.DATA,
    "A loader is replaced before use, or built anew in a loop",
    _check,
    triggers=("DataLoader",),
)
