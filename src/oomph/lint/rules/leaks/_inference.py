"""Loops that only predict, as their code shows whatever their names say."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...analysis import (
    Code,
    Function,
    Loop,
    called_model,
    calls_of,
    is_optimizer,
    iterates_over_loader,
    makes_other_object,
    model_calls,
    runs_without_grad,
    training_calls,
    walk,
)

_LEAVING = {"cpu", "numpy", "tolist", "item"}  # methods that take a result out of the graph or off the GPU
_COLLECTING = {"append", "extend"}


def collects_features(code: Code, node: ast.AST, call: ast.Call) -> bool:
    """Return True for a loop over a loader that collects the outputs of a model without gradients, behind its training.

    A train() between the two says that the mode is meant, as for Monte Carlo dropout.
    """
    model = code.name(called_model(call))
    source = node.generators[0] if isinstance(node, ast.ListComp) else node
    if model is None or not runs_without_grad(code, call) or not iterates_over_loader(code, source):
        return False
    if not (isinstance(node, ast.ListComp) or _is_collected(code, node, call)):
        return False
    line = int(getattr(node, "lineno", 0))
    ends = [loop.end_lineno or 0 for loop in _training_loops(code, model, call) if (loop.end_lineno or 0) < line]
    switches = (item for item in calls_of(code, "train") if code.function(item) is code.function(call))
    return bool(ends) and not any(max(ends) < item.lineno < line for item in switches)


def _training_loops(code: Code, model: str, call: ast.Call) -> Iterator[Loop]:
    """Yield the innermost loops of the same function that train a model."""
    for backward in training_calls(code):
        loop = next(code.loops_around(backward), None)
        if loop is None or code.function(backward) is not code.function(call):
            continue
        if any(code.name(called_model(run)) == model and code.is_inside(run, loop) for run in model_calls(code)):
            yield loop


def _is_collected(code: Code, node: ast.AST, call: ast.Call) -> bool:
    """Return True if a loop puts the result of a call into a list."""
    for other in walk(node):
        if isinstance(other, ast.Call) and isinstance(other.func, ast.Attribute) and other.func.attr in _COLLECTING:
            parts = [part for argument in other.args for part in walk(argument)]
            names = [value for part in parts if isinstance(part, ast.Name) for value in code.values(part)]
            if call in parts or any(call is item for value in names for item in walk(value)):
                return True
    return False


def predicts_with_loaded_weights(code: Code, node: ast.AST, call: ast.Call) -> bool:
    """Return True for a loop of a function that makes a model, loads its weights, and only takes its results."""
    function, model = code.function(call), code.name(called_model(call))
    if function is None or model is None or not _is_loaded(code, function, model):
        return False
    if any(code.function(item) is function for item in training_calls(code)) or _hands_on(code, function, model):
        return False
    return any(
        isinstance(item, ast.Attribute) and item.attr in _LEAVING and _comes_from(code, item.value, call)
        for item in walk(node)
    )


def _is_loaded(code: Code, function: Function, model: str) -> bool:
    """Return True if a function makes a model and loads its weights."""
    bindings = [item for item in code.assignments(model, function.body[0]) if makes_other_object(code, item)]
    loads = (item for item in calls_of(code, "load_state_dict") if code.function(item) is function)
    return (
        bool(bindings)
        and all(code.function(item.statement) is function for item in bindings)
        and any(isinstance(item.func, ast.Attribute) and code.name(item.func.value) == model for item in loads)
    )


def _hands_on(code: Code, function: Function, model: str) -> bool:
    """Return True if a function trains its model by an optimizer, or gives it to other code."""
    for node in walk(function):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            values = [*node.args, *(item.value for item in node.keywords)]
        elif isinstance(node, ast.Return) and node.value is not None:
            values = [*node.value.elts] if isinstance(node.value, ast.Tuple) else [node.value]
        if any(code.name(value) == model for value in values) or (
            isinstance(node, ast.Name) and is_optimizer(code, node)
        ):
            return True
    return False


def _comes_from(code: Code, node: ast.expr, call: ast.Call) -> bool:
    """Return True if an expression is the result of a call, or bindings of it by methods."""
    base = _base(node, call)
    return base is call or (isinstance(base, ast.Name) and any(_base(item, call) is call for item in code.values(base)))


def _base(node: ast.expr, call: ast.Call) -> ast.expr:
    """Return what methods, attributes and items are taken of, at most a call."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)) and node is not call:
        node = node.func if isinstance(node, ast.Call) else node.value
    return node
