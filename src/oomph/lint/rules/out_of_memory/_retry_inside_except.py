"""Rule `retry-inside-except`: the step runs again while the traceback holds the tensors of the failed one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, catches_only_oom, is_heavy_call, last_part, model_calls, training_calls, walk
from ...sources import Document
from ._handlers import memory_handlers

# Functions that a handler may call as the failed code did, without running a model.
_TRIVIAL = {
    "", "print", "len", "str", "range", "int", "float", "max", "min", "append", "to", "cuda", "cpu", "size", "format",
    "info", "warning", "error", "debug", "log", "DataLoader", "get", "join", "isinstance", "set_postfix", "write",
    "update", "step", "item", "enumerate", "zip", "open", "time", "zero_grad", "empty_cache", "add_scalar", "device",
    "memory_allocated",
}  # fmt: skip


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for block, handler in memory_handlers(document):
        retry = _retry(code, block, handler)
        if retry is not None:
            message = (
                f"{code.source(retry.func)}(…) runs again inside the except block, where the traceback still holds all "
                "tensors of the failed step: set a flag, leave the block and retry after it"
            )
            yield Problem(code.span(retry), message)


def _retry(code: Code, block: ast.Try, handler: ast.ExceptHandler) -> ast.Call | None:
    """Return the first call in a handler that runs the model again."""
    tried = {_called(code, node) for statement in block.body for node in walk(statement) if isinstance(node, ast.Call)}
    function = code.function(handler)
    is_tried_heavy = {
        _called(code, node)
        for statement in block.body
        for node in walk(statement)
        if isinstance(node, ast.Call) and is_heavy_call(code, node)
    }
    only = _only_call(block)
    for statement in handler.body:
        for node in walk(statement):
            if not isinstance(node, ast.Call) or _is_freeing(code, node) or _is_message(node):
                continue
            name = _called(code, node)
            is_recursion = function is not None and name == function.name and function.name not in {"__init__", "main"}
            is_model = node in model_calls(code) or node in training_calls(code)
            if is_recursion or is_model or name in is_tried_heavy or (is_heavy_call(code, node) and name in tried):
                return node
            if is_heavy_call(code, node) and _takes_part(node):
                return node
            if only is not None and name == _called(code, only) and name not in _TRIVIAL and node.args:
                return node
            if catches_only_oom(code, handler) and name in tried - _TRIVIAL and (node.args or node.keywords):
                return node
    return None


def _only_call(block: ast.Try) -> ast.Call | None:
    """Return the call of a block that consists of one: a wrapper runs the function that it is given."""
    statement = block.body[0]
    value = statement.value if isinstance(statement, (ast.Return, ast.Expr, ast.Assign)) else None
    return value if len(block.body) == 1 and isinstance(value, ast.Call) else None


def _is_freeing(code: Code, call: ast.Call) -> bool:
    return code.call_name(call).rpartition(".")[2] in {"empty_cache", "collect", "zero_grad", "print", "eval"}


def _is_message(call: ast.Call) -> bool:
    """Return True for a call that receives only text, such as `log("out of memory")`."""
    return bool(call.args) and all(
        isinstance(argument, ast.JoinedStr) or (isinstance(argument, ast.Constant) and isinstance(argument.value, str))
        for argument in call.args
    )


def _takes_part(call: ast.Call) -> bool:
    """Return True if a call receives a part of something: `step(x[:n])`."""
    return any(isinstance(argument, ast.Subscript) and isinstance(argument.slice, ast.Slice) for argument in call.args)


def _called(code: Code, call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else last_part(code.name(call.func))


RETRY_INSIDE_EXCEPT = Rule(
    "retry-inside-except",
    RuleFamily.OUT_OF_MEMORY,
    "A failed step is retried inside the except block",
    _check,
    triggers=("except",),
)
