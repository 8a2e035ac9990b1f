"""Handlers of exceptions: what they catch, and whether they are meant for out-of-memory errors."""

from __future__ import annotations

import ast
import re

from ._code import Code, walk
from ._models import heavy_functions, model_calls, training_calls
from ._roles import last_part

_OUT_OF_MEMORY = {"OutOfMemoryError", "ResourceExhaustedError"}
_BROAD = {"RuntimeError", "Exception", "BaseException"}
_MEMORY_WORDS = re.compile(
    r"\boom\b|_oom|oom_|ooms?\b|out[ _]of[ _]memory|outofmemory|memory|too (?:big|large)|\bn[o']t fit|vram",
    re.IGNORECASE,
)
_SIZE_NAME = re.compile(r"(?:^|_)(?:bs|bsz|batch|batch_?size|b|n|mb)(?:$|_|\d)", re.IGNORECASE)
_HEAVY_NAME = re.compile(
    r"(?:^|_)(?:train|fit|step|forward|epoch|backward|trainer|finetune|run_batch|update)(?:$|_|\d)|^(?:train|fit)",
    re.IGNORECASE,
)
_REPORTS = {
    "print", "str", "repr", "format", "format_exception", "log", "info", "warning", "error", "exception", "debug",
    "type", "warn", "write", "critical", "secho", "echo", "append",
}  # fmt: skip


def caught_names(code: Code, handler: ast.ExceptHandler) -> set[str]:
    """Return the last parts of the names of the exceptions that a handler catches; empty for a bare except."""
    if handler.type is None:
        return set()
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names: set[str] = set()
    for item in types:
        values = [value for value in code.values(item) if isinstance(value, (ast.Attribute, ast.Tuple))]
        parts = [element for value in values for element in (value.elts if isinstance(value, ast.Tuple) else [value])]
        names.update(last_part(code.resolve(part)) for part in (parts or [item]))
    return names


def catches_only_oom(code: Code, handler: ast.ExceptHandler) -> bool:
    """Return True if a handler catches torch's or TensorFlow's out-of-memory error and nothing broader."""
    names = caught_names(code, handler)
    return bool(names & _OUT_OF_MEMORY) and not names & _BROAD


def is_broad(code: Code, handler: ast.ExceptHandler) -> bool:
    """Return True if a handler catches any error, or any RuntimeError."""
    return handler.type is None or bool(caught_names(code, handler) & _BROAD)


def looks_at_exception(code: Code, handler: ast.ExceptHandler) -> bool:
    """Return True if a handler decides by the exception's type or message, or gives it to a function that may."""
    for statement in handler.body:
        for node in walk(statement):
            if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)) and _mentions(node.test, handler.name):
                return True
            if isinstance(node, ast.Compare) and _mentions(node, handler.name):
                return True
            if isinstance(node, ast.Match) and _mentions(node.subject, handler.name):
                return True
            if isinstance(node, ast.Call) and _takes_exception(code, node, handler.name):
                return True
            if isinstance(node, ast.Call) and last_part(code.name(node.func)) in {"exc_info", "format_exc"}:
                parent = code.parent(node)
                if isinstance(parent, (ast.Compare, ast.If, ast.Assign)):
                    return True
    return _tests_copy(handler)


def _tests_copy(handler: ast.ExceptHandler) -> bool:
    """Return True for `message = str(e)` and a test of it."""
    if handler.name is None:
        return False
    copies = {
        target.id
        for statement in handler.body
        if isinstance(statement, ast.Assign) and _mentions(statement.value, handler.name)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    return any(
        isinstance(node, (ast.If, ast.IfExp)) and any(_mentions(node.test, name) for name in copies)
        for statement in handler.body
        for node in walk(statement)
    )


def _takes_exception(code: Code, call: ast.Call, name: str | None) -> bool:
    """Return True if a function other than one for output receives the exception itself."""
    if name is None:
        return False
    func = call.func.attr if isinstance(call.func, ast.Attribute) else last_part(code.name(call.func))
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return func not in _REPORTS and any(isinstance(item, ast.Name) and item.id == name for item in arguments)


def _mentions(node: ast.AST, name: str | None) -> bool:
    return name is not None and any(isinstance(item, ast.Name) and item.id == name for item in walk(node))


def is_about_memory(code: Code, handler: ast.ExceptHandler, text: str) -> bool:
    """Return True if a handler, with its comments and the name of its function, is meant for a lack of memory."""
    function = code.function(handler)
    name = function.name if function is not None else ""
    if _MEMORY_WORDS.search(text) or re.search(r"(?:^|_)(?:fits?|oom|memory|max_batch|batch_size)(?:$|_)", name):
        return True
    if _halves_behind(code, handler):
        return True
    return any(
        (isinstance(node, ast.Call) and last_part(code.name(node.func)) == "empty_cache") or is_halving(code, node)
        for statement in handler.body
        for node in walk(statement)
    )


def _halves_behind(code: Code, handler: ast.ExceptHandler) -> bool:
    """Return True if a loop tries a smaller batch after the handler, while a success leaves the loop."""
    block = code.parent(handler)
    loop = code.parent(block) if block is not None else None
    if not isinstance(block, ast.Try) or not isinstance(loop, (ast.While, ast.For)) or block not in loop.body:
        return False
    leaves = any(
        isinstance(node, (ast.Return, ast.Break)) for item in (*block.body, *block.orelse) for node in walk(item)
    )
    later = loop.body[loop.body.index(block) + 1 :]
    return leaves and any(is_halving(code, node) for item in later for node in walk(item))


def is_halving(code: Code, node: ast.AST) -> bool:
    """Return True for a statement that makes a batch smaller: `bs //= 2`, `bs = max(1, bs // 2)`."""
    if isinstance(node, ast.AugAssign):
        is_less = isinstance(node.op, ast.Sub) and "b" in last_part(code.name(node.target))
        return (is_less or isinstance(node.op, (ast.FloorDiv, ast.Div, ast.RShift))) and _is_size(code, node.target)
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = ast.unparse(node.targets[0])
        return _is_size(code, node.targets[0]) and any(
            _is_division(item) and (ast.unparse(item.left) == target or _is_size(code, item.left))
            for item in walk(node.value)
            if isinstance(item, ast.BinOp)
        )
    return False


def is_half(code: Code, node: ast.AST) -> bool:
    """Return True for a smaller size of a batch: `bs // 2`, `batch_size * 0.5`."""
    return isinstance(node, ast.BinOp) and _is_division(node) and _is_size(code, node.left)


def _is_division(node: ast.BinOp) -> bool:
    is_half = isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant) and node.right.value == 0.5  # noqa: PLR2004
    return isinstance(node.op, (ast.FloorDiv, ast.Div, ast.RShift)) or is_half


def _is_size(code: Code, node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _SIZE_NAME.search(str(node.slice.value)) is not None
    return _SIZE_NAME.search(last_part(code.name(node))) is not None


def runs_model(code: Code, node: ast.AST) -> bool:
    """Return True if code runs a model, a backward, or a function that is known or named to do so."""
    return any(is_heavy_call(code, item) for item in walk(node) if isinstance(item, ast.Call))


def is_heavy_call(code: Code, call: ast.Call) -> bool:
    """Return True if a call runs a model or a training step."""
    if call in model_calls(code) or call in training_calls(code):
        return True
    last = call.func.attr if isinstance(call.func, ast.Attribute) else last_part(code.name(call.func))
    if last in {"train", "eval"} and isinstance(call.func, ast.Attribute) and not (call.args or call.keywords):
        return "train" in last_part(code.name(call.func.value)).lower()  # model.train() only sets a mode
    if last == "step":
        # optimizer.step() and scheduler.step(loss) run no model.
        is_method = isinstance(call.func, ast.Attribute) and code.name(call.func.value) not in {"self", "trainer"}
        return not is_method and bool(call.args or call.keywords)
    return last in heavy_functions(code) or _HEAVY_NAME.search(last) is not None
