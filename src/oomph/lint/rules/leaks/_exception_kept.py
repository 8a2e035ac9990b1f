"""Rule `exception-kept`: a caught exception outlives its handler, and with it the tensors of the failed step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Edit, Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, catches_only_oom, is_about_memory, runs_model, walk
from ...sources import Document
from .._handler_text import handler_text

_ADDING_METHODS = {"append", "appendleft", "add", "put", "extend", "insert", "setdefault"}


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for block in code.nodes(ast.Try):
        if not any(runs_model(code, statement) for statement in block.body):
            is_named = any(catches_only_oom(code, handler) for handler in block.handlers)
            if not is_named:
                continue
        for handler in block.handlers:
            yield from _check_handler(document, handler)


def _check_handler(document: Document, handler: ast.ExceptHandler) -> Iterator[Problem]:
    code, name = document.code, handler.name
    if not _is_for_failed_steps(document, handler) or _is_cleared(handler):
        return
    for statement in handler.body:
        for node in walk(statement):
            kept = _kept_exception(code, node, name)
            if kept is None or _leaves_function(code, node, handler):
                continue
            exception, target = kept
            text = code.source(exception)
            message = (
                f"`{code.source(node)}` keeps the traceback and with it all tensors of the failed step: keep "
                f"str({text}) or {text}.with_traceback(None)"
            )
            yield Problem(code.span(node), message, _edits(document, exception, target))


def _is_for_failed_steps(document: Document, handler: ast.ExceptHandler) -> bool:
    """Return True if a handler catches errors of the step: of any kind, or for lack of memory."""
    code = document.code
    return (
        catches_only_oom(code, handler)
        or _goes_on(code, handler)
        or is_about_memory(code, handler, handler_text(document, handler))
    )


def _goes_on(code: Code, handler: ast.ExceptHandler) -> bool:
    """Return True if the program runs on after the handler."""
    is_left = isinstance(handler.body[-1], (ast.Raise, ast.Return))
    return not is_left and (code.function(handler) is not None or next(code.loops_around(handler), None) is not None)


def _is_cleared(handler: ast.ExceptHandler) -> bool:
    text = ast.unparse(handler)
    return "with_traceback(None)" in text or "__traceback__ = None" in text or "clear_frames" in text


def _kept_exception(code: Code, node: ast.AST, name: str | None) -> tuple[ast.expr, str] | None:
    """Return the exception and what keeps it, if a node stores it beyond the handler."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        exception = _exception_in(code, node.value, name)
        # A container of locals, such as the arguments of a log call, dies with the handler.
        if exception is not None and isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)):
            return exception, code.name(target) or ast.unparse(target)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING_METHODS:
        for argument in node.args:
            if (exception := _exception_in(code, argument, name)) is not None:
                return exception, ast.unparse(node.func.value)
    return None


def _exception_in(code: Code, value: ast.expr, name: str | None) -> ast.expr | None:
    if isinstance(value, ast.Name) and value.id == name:
        return value
    if isinstance(value, ast.Attribute) and value.attr == "__traceback__" and code.name(value.value) == name:
        return value
    if isinstance(value, ast.Call) and code.call_name(value) == "sys.exc_info":
        return value
    parts: list[ast.expr] = []
    if isinstance(value, (ast.Tuple, ast.List)):
        parts = value.elts
    elif isinstance(value, ast.Dict):
        parts = value.values
    return next((found for part in parts if (found := _exception_in(code, part, name)) is not None), None)


def _leaves_function(code: Code, node: ast.AST, handler: ast.ExceptHandler) -> bool:
    """Return True if what keeps the exception is a local name and the handler ends the function."""
    is_local = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    if not is_local or code.function(handler) is None:
        return False
    shared: list[ast.Global | ast.Nonlocal] = [*code.nodes(ast.Global), *code.nodes(ast.Nonlocal)]
    if any(node.targets[0].id in item.names for item in shared):  # type: ignore[attr-defined]
        return False
    return isinstance(handler.body[-1], (ast.Raise, ast.Return))


def _edits(document: Document, exception: ast.expr, target: str) -> tuple[Edit, ...]:
    """Return the edit that drops the traceback, unless the exception is raised or shown with it later."""
    code = document.code
    if not isinstance(exception, ast.Name) or "traceback" in document.text or "exc_info" in document.text:
        return ()
    is_raised = any(
        raised.exc is not None and ast.unparse(raised.exc).startswith(target) for raised in code.nodes(ast.Raise)
    ) or any(raised.cause is not None for raised in code.nodes(ast.Raise))
    is_iterated = target in {ast.unparse(loop.iter) for loop in code.nodes(ast.For)} and bool(code.nodes(ast.Raise))
    return () if is_raised or is_iterated else (code.insert_after(exception, ".with_traceback(None)"),)


EXCEPTION_KEPT = Rule(
    "exception-kept",
    RuleFamily.LEAKS,
    "A caught exception is kept with the tensors of the failed step",
    _check,
    triggers=("except",),
    is_fixable=True,
)
