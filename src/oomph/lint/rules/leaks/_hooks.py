"""Hooks: where they are registered, which functions they run, and what these keep."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...analysis import Code, Function, calls_of, gradients_are_off, model_calls, walk

REGISTRATIONS = (
    "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_backward_hook",
    "register_full_backward_pre_hook", "register_hook", "register_post_accumulate_grad_hook",
)  # fmt: skip
_OUTPUT_POSITION = 2  # hook(module, inputs, output)
_CUTTING = {"detach", "data", "item", "numpy", "tolist", "argmax", "shape", "size", "max", "topk", "dtype", "device"}
_ADDING = {"append", "extend"}


def registrations(code: Code) -> list[ast.Call]:
    """Return all calls that register a hook, in source order."""
    calls = [call for name in REGISTRATIONS for call in calls_of(code, name) if isinstance(call.func, ast.Attribute)]
    return sorted(calls, key=lambda call: call.lineno)


def hook_outputs(code: Code) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield where a forward hook adds its output, with the graph, to a list, if the model runs with gradients."""
    calls = calls_of(code, "register_forward_hook")
    for function in _hook_functions(code, calls):
        runs = [run for run in model_calls(code) if code.class_of(run) is code.class_of(function)]
        if not runs or any(gradients_are_off(code, run) for run in runs):
            continue
        arguments = function.args.args
        offset = 1 if arguments and arguments[0].arg == "self" else 0
        if len(arguments) <= _OUTPUT_POSITION + offset:
            continue
        output = arguments[_OUTPUT_POSITION + offset].arg
        for node in walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
                if _ends_with_forward(code, node.func.value, runs):
                    continue
                for argument in node.args:
                    if _unwrapped(argument) == output:
                        yield node, argument


def _ends_with_forward(code: Code, container: ast.expr, runs: Sequence[ast.Call]) -> bool:
    """Return True if a list belongs to a call that runs the model once: features that are used right after it."""
    name = container.id if isinstance(container, ast.Name) else ""
    owners = {code.function(item.statement) for item in code.assignments(name, container)} - {None}
    own_runs = [run for run in runs if code.function(run) in owners]
    return bool(own_runs) and all(next(code.loops_around(run), None) is None for run in own_runs)


def _unwrapped(node: ast.expr) -> str | None:
    """Return the name behind methods and indices that keep the graph: `output` of `output[0].flatten(1).cpu()`."""
    while isinstance(node, (ast.Call, ast.Subscript, ast.Attribute)):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Attribute):
                return None
            node = node.func
        elif isinstance(node, ast.Attribute):
            if node.attr in _CUTTING:
                return None
            node = node.value
        else:
            node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _hook_functions(code: Code, calls: list[ast.Call]) -> Iterator[Function]:
    """Yield the functions that are registered, also those that a factory returns."""
    seen: set[ast.AST] = set()
    for call in calls:
        for argument in call.args[:1]:
            function = argument.func if isinstance(argument, ast.Call) else argument
            name = (code.name(function) or "").rpartition(".")[2]
            for definition in code.nodes(ast.FunctionDef):
                if definition.name != name or definition in seen:
                    continue
                seen.add(definition)
                yield definition
                yield from (
                    item for item in walk(definition) if isinstance(item, ast.FunctionDef) and item is not definition
                )
