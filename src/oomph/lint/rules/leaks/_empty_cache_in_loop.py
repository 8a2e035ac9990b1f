"""Rule `empty-cache-in-loop`: torch.cuda.empty_cache() at every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Edit, Problem
from ..._removal import remove_statements
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Loop, callers, iterates_over_loader, model_calls, training_calls, walk
from ...sources import Document
from ._evaluation import evaluation_loops

_DEVICES = ("cuda", "mps", "xpu", "npu")
_STEP_HOOKS = {
    "on_train_batch_end",
    "on_train_batch_start",
    "on_batch_end",
    "training_step",
    "validation_step",
    "on_step_end",
}
_ALWAYS = re.compile(r"^torch\.cuda\.is_available\(\)$|^\w*(?:device|dev)\w*(?:\.type)? == 'cuda'|^use_cuda$|^cuda$")
_BATCHES = re.compile(r"\b(?:train|val|test|data)_?(?:iter(?:ator)?|batches|generator)\b|^batches$")
_SYNTHETIC = {"randn", "rand", "zeros", "ones", "randint", "empty", "randn_like"}


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for call in code.nodes(ast.Call):
        if not _is_empty_cache(code, call):
            continue
        loop = next(code.loops_around(call), None) or _step_function(code, call)
        if loop is None or not _runs_in_every_iteration(code, call, loop):
            continue
        if not isinstance(loop, ast.FunctionDef) and not _is_step_loop(code, loop):
            continue
        collection = _collection(code, loop)
        with_collection = "" if collection is None else f" with {code.source(collection)}"
        message = (
            f"{code.source(call)}{with_collection} at every step frees no memory that torch could not use itself, and "
            "makes the next step wait for the driver: remove it"
        )
        yield Problem(code.span(call), message, _edits(document, call, collection))
    yield from _check_functions(code)


def _check_functions(code: Code) -> Iterator[Problem]:
    """Check calls at every step of functions of the document that only free memory."""
    functions = {code.function(call) for call in code.nodes(ast.Call) if _is_empty_cache(code, call)}
    for function in functions:
        if not isinstance(function, ast.FunctionDef) or not _only_frees(code, function):
            continue
        for call in callers(code, function):
            loop = next(code.loops_around(call), None)
            if loop is None or not _runs_in_every_iteration(code, call, loop) or not _is_step_loop(code, loop):
                continue
            message = (
                f"{code.source(call)} empties the allocator's cache at every step, which frees no memory that torch "
                "could not use itself, and makes the next step wait for the driver: remove it"
            )
            yield Problem(code.span(call), message)


def _only_frees(code: Code, function: ast.FunctionDef) -> bool:
    """Return True if a function consists of calls such as gc.collect() and empty_cache()."""
    calls = [node for node in walk(function) if isinstance(node, ast.Call)]
    has_branch = any(isinstance(node, ast.If) and not _ALWAYS.search(ast.unparse(node.test)) for node in walk(function))
    return not has_branch and all(code.call_name(call).startswith(("torch.", "gc.", "print")) for call in calls)


def _is_empty_cache(code: Code, call: ast.Call) -> bool:
    name = code.call_name(call)
    return name in {f"torch.{device}.empty_cache" for device in _DEVICES} or name == "torch.accelerator.empty_cache"


def _edits(document: Document, call: ast.Call, collection: ast.Call | None) -> tuple[Edit, ...]:
    """Return the edits that remove the call, and with it the collection, unless nothing of its block would be left."""
    code = document.code
    statements = [code.statement(item) for item in (call, collection) if item is not None]
    if not _is_alone(statements[0], call):
        return ()
    body = getattr(code.parent(statements[0]), "body", [])
    if collection is not None and (not _is_alone(statements[1], collection) or set(body) <= set(statements)):
        statements = statements[:1]
    return remove_statements(code, document.sources, statements)


def _is_alone(statement: ast.stmt, call: ast.Call) -> bool:
    """Return True if a statement consists of a call."""
    return isinstance(statement, ast.Expr) and statement.value is call


def _runs_in_every_iteration(code: Code, call: ast.Call, loop: Loop | ast.FunctionDef) -> bool:
    """Return True if no condition or handler is between a call and its loop."""
    for outer in code.ancestors(call):
        if outer is loop:
            return call.lineno <= max(statement.end_lineno or 0 for statement in loop.body)
        if isinstance(outer, ast.If) and _ALWAYS.search(ast.unparse(outer.test)):
            continue
        if isinstance(outer, (ast.If, ast.ExceptHandler, ast.IfExp, ast.BoolOp)):
            return False
    return False


def _is_step_loop(code: Code, loop: Loop) -> bool:
    """Return True if each iteration of a loop is one step on one batch, in training or evaluation."""
    if _makes_model(code, loop) or _is_measurement(code, loop):
        return False
    if iterates_over_loader(code, loop):
        return True
    runs = {call for call in training_calls(code) if next(code.loops_around(call), None) is loop}
    return bool(runs) or any(evaluation.node is loop and evaluation.is_named for evaluation in evaluation_loops(code))


def _step_function(code: Code, call: ast.Call) -> ast.FunctionDef | None:
    """Return the function around a call if it is one step: a framework's hook, or a backward without a loop."""
    function = code.function(call)
    if not isinstance(function, ast.FunctionDef):
        return None
    if function.name in _STEP_HOOKS:
        return function
    runs = [run for run in training_calls(code) if code.function(run) is function]
    is_step = bool(runs) and all(next(code.loops_around(run), None) is None for run in runs) and "step" in function.name
    return function if is_step else None


def _makes_model(code: Code, loop: Loop) -> bool:
    """Return True if each iteration has its own model, as in a comparison of models."""
    models = {code.name(call.func) for call in model_calls(code) if code.is_inside(call, loop)}
    for node in walk(loop):
        if isinstance(node, ast.Assign) and any(code.name(target) in models for target in node.targets):
            return True
        if isinstance(node, ast.Delete) and any(code.name(target) in models for target in node.targets):
            return True
    return False


def _is_measurement(code: Code, loop: Loop) -> bool:
    """Return True if the loop tries sizes with inputs of its own, as a search for the largest batch does."""
    is_over_batches = not isinstance(loop, ast.While) and _BATCHES.search(ast.unparse(loop.iter)) is not None
    if is_over_batches or iterates_over_loader(code, loop):
        return False
    if any(isinstance(statement, ast.Try) for statement in loop.body):
        return True
    sizes = {
        item.id
        for item in walk(loop.test if isinstance(loop, ast.While) else loop.target)
        if isinstance(item, ast.Name)
    }
    return any(
        isinstance(node, ast.Call)
        and code.call_name(node).startswith("torch.")
        and code.call_name(node).rpartition(".")[2] in _SYNTHETIC
        and any(isinstance(item, ast.Name) and item.id in sizes for item in walk(node))
        for statement in loop.body
        for node in walk(statement)
    )


def _collection(code: Code, loop: Loop | ast.FunctionDef) -> ast.Call | None:
    """Return the `gc.collect()` of the same loop."""
    for node in walk(loop):
        if (
            isinstance(node, ast.Call)
            and code.call_name(node) == "gc.collect"
            and (next(code.loops_around(node), None) or code.function(node)) is loop
        ):
            return node if _runs_in_every_iteration(code, node, loop) else None
    return None


EMPTY_CACHE_IN_LOOP = Rule(
    "empty-cache-in-loop",
    RuleFamily.LEAKS,
    "The allocator's cache is emptied at every step",
    _check,
    triggers=("empty_cache",),
    is_fixable=True,
)
