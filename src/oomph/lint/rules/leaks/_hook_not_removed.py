"""Rule `hook-not-removed`: a hook is registered again and again, and never removed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Function, Loop, callers, iterates_over_loader, model_calls, training_calls, walk
from ...sources import Document
from ._hooks import registrations

# Functions that a program usually calls once.
_ONCE = re.compile(
    r"^(?:main|__init__|__enter__|setup|fit|train|training|run_training)$|setup|install|init|^_?register"
)
_STEPS = re.compile(r"epoch|step|batch|iter|\bep\b", re.IGNORECASE)
_MODULE_ITERATORS = {
    "modules", "named_modules", "children", "named_children", "parameters", "named_parameters", "items", "values",
}  # fmt: skip


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for call in registrations(code):
        if _is_tensor_hook(code, call) or not _is_handle_lost(code, call):
            continue
        reason = _repetition(code, call)
        if reason is not None:
            message = (
                f"{code.source(call.func)} adds one more hook {reason} and nothing removes it: keep its handle and "
                "call handle.remove(), or register it once"
            )
            yield Problem(code.span(call), message)


def _is_tensor_hook(code: Code, call: ast.Call) -> bool:
    """Return True for a hook of a tensor, which dies with the tensor; parameters live on."""
    func = call.func
    assert isinstance(func, ast.Attribute)  # noqa: S101  by `registrations`
    if func.attr != "register_hook":
        return False
    receiver = code.name(func.value) or ""
    if receiver.endswith((".weight", ".bias")):
        return False
    return not any(
        isinstance(loop, ast.For) and "parameters" in ast.unparse(loop.iter) and receiver in _targets(loop)
        for loop in code.loops_around(call)
    )


def _is_handle_lost(code: Code, call: ast.Call) -> bool:
    """Return True if the handle is thrown away, or if its name or list is never used again."""
    statement = code.statement(call)
    if isinstance(statement, ast.Expr) and statement.value is call:
        return True
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and statement.value.args == [call]:
        func = statement.value.func
        is_append = isinstance(func, ast.Attribute) and func.attr == "append"
        name = code.name(func.value) if is_append and isinstance(func, ast.Attribute) else None
        return name is not None and "." not in name and _reads(code, name, call) <= 1
    if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        target = statement.targets[0]
        return isinstance(target, ast.Name) and _reads(code, target.id, call) == 0
    return False


def _reads(code: Code, name: str, node: ast.AST) -> int:
    scope = code.function(node) or code.tree
    return sum(
        isinstance(item, ast.Name) and item.id == name and isinstance(item.ctx, ast.Load)
        for item in walk(scope, into_functions=True)
    )


def _repetition(code: Code, call: ast.Call) -> str | None:
    """Return how a registration is repeated for the same module: in each iteration, or at each call."""
    loops = list(code.loops_around(call))
    for loop in loops:
        if _runs_steps(code, loop) and not _is_created_in(code, call, loop):
            return "in every iteration"
    function = code.function(call)
    if function is None or _creates_model(code, call, function):
        return None
    if any(_runs_steps(code, loop) for caller in callers(code, function) for loop in code.loops_around(caller)):
        return "at every call"
    if _ONCE.search(function.name) or _is_cleaned(code, function):
        return None
    is_run_after = any(
        code.function(run) is function and run.lineno > call.lineno
        for run in (*model_calls(code), *training_calls(code), *_attribute_calls(code))
    )
    return "at every call" if is_run_after else None


def _attribute_calls(code: Code) -> Iterator[ast.Call]:
    """Yield the calls of attributes that hold an object, not a method: `self.m(x)` runs a module."""
    for call in code.nodes(ast.Call):
        name = code.name(call.func)
        is_attribute = name is not None and name.startswith("self.") and name.count(".") == 1 and bool(call.args)
        if is_attribute and any(item.kind == "=" for item in code.assignments(name or "", call)):
            yield call


def _runs_steps(code: Code, loop: Loop) -> bool:
    """Return True if a loop runs over data, steps or epochs, not over the modules of a model."""
    if isinstance(loop, ast.While):
        return any(code.is_inside(run, loop) for run in (*model_calls(code), *training_calls(code)))
    inner = (node for node in walk(loop) if isinstance(node, (ast.For, ast.AsyncFor)))
    if any(iterates_over_loader(code, node) for node in inner):
        return True
    iterable = loop.iter
    name = iterable.func if isinstance(iterable, ast.Call) else iterable
    if (code.name(name) or "").rpartition(".")[2] in {"range", "trange"} and isinstance(iterable, ast.Call):
        is_named = any(
            _STEPS.search(text) for text in (ast.unparse(loop.target), *(ast.unparse(a) for a in iterable.args))
        )
        return is_named or any(code.is_inside(run, loop) for run in training_calls(code))
    if (code.name(name) or "").rpartition(".")[2] in _MODULE_ITERATORS:
        return False
    return any(code.is_inside(run, loop) for run in training_calls(code))


def _is_created_in(code: Code, call: ast.Call, loop: Loop) -> bool:
    """Return True if the hooked object is new in each iteration or a different one."""
    func = call.func
    assert isinstance(func, ast.Attribute)  # noqa: S101  by `registrations`
    names = {item.id for item in walk(func.value) if isinstance(item, ast.Name)}
    inner = [outer for outer in code.loops_around(call) if code.is_inside(outer, loop)]
    for other in inner:
        # The module of an inner loop over modules: what that loop iterates over decides.
        if isinstance(other, ast.For) and names & _targets(other):
            names = {item.id for item in walk(other.iter) if isinstance(item, ast.Name)}
    if isinstance(loop, ast.For) and names & _targets(loop):
        return True
    return any(
        code.is_inside(assignment.statement, loop)
        for name in names
        for assignment in code.assignments(name, call)
        if assignment.kind == "="
    )


def _creates_model(code: Code, call: ast.Call, function: Function) -> bool:
    """Return True if the hooked model is made in the same function, so that each call has a new one."""
    func = call.func
    assert isinstance(func, ast.Attribute)  # noqa: S101  by `registrations`
    names = {item.id for item in walk(func.value) if isinstance(item, ast.Name)} - {"self"}
    for loop in code.loops_around(call):
        if isinstance(loop, ast.For) and names & _targets(loop):
            names = {item.id for item in walk(loop.iter) if isinstance(item, ast.Name)} - {"self"}
    return any(
        assignment.kind == "="
        and code.is_inside(assignment.statement, function)
        and isinstance(assignment.value, ast.Call)
        for name in names
        for assignment in code.assignments(name, call)
    )


def _is_cleaned(code: Code, function: Function) -> bool:
    """Return True if the function empties the module's hooks itself, or removes handles that may be any."""
    text = ast.unparse(function)
    if "_hooks.clear" in text or "_hooks =" in text:
        return True
    hooks = set(registrations(code))
    removed = (
        node.func.value
        for node in walk(function, into_functions=True)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "remove"
    )
    # `h1.remove()` removes the hook whose handle h1 is, and no other.
    return any(
        not isinstance(handle, ast.Name) or not code.values(handle) or not set(code.values(handle)) <= hooks
        for handle in removed
    )


def _targets(loop: ast.For | ast.AsyncFor) -> set[str]:
    return {item.id for item in walk(loop.target) if isinstance(item, ast.Name)}


HOOK_NOT_REMOVED = Rule(
    "hook-not-removed",
    RuleFamily.LEAKS,
    "A hook is registered repeatedly and never removed",
    _check,
    triggers=("_hook(",),
)
