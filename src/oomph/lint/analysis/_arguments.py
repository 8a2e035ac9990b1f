"""Arguments: which expressions the calls in a document pass to a function's parameters."""

from __future__ import annotations

import ast

from ._code import Code, Function


def passed_values(code: Code, function: Function, parameter: str) -> list[ast.expr]:
    """Return what the calls of a function in this document pass for a parameter; nothing if one of them is unclear."""
    values: list[ast.expr] = []
    for call in code.nodes(ast.Call):
        if _last(code.name(call.func)) != function.name:
            continue
        value = passed_value(code, function, call, parameter)
        if value is None:
            return []
        values.append(value)
    return values


def passed_value(code: Code, function: Function, call: ast.Call, parameter: str) -> ast.expr | None:
    """Return what a call passes for a parameter; None if it passes nothing or a starred argument hides it."""
    for item in call.keywords:
        if item.arg == parameter:
            return item.value
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if _is_method(code, function) and isinstance(call.func, ast.Attribute):
        names = names[1:]
    if parameter not in names or any(isinstance(item, ast.Starred) for item in call.args):
        return None
    position = names.index(parameter)
    return call.args[position] if position < len(call.args) else None


def default_value(function: Function, parameter: str) -> ast.expr | None:
    """Return the default of a parameter."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    pairs += [(name, value) for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    return next((value for argument, value in pairs if argument.arg == parameter), None)


def _is_method(code: Code, function: Function) -> bool:
    is_static = any(code.name(item) == "staticmethod" for item in function.decorator_list)
    return isinstance(code.parent(function), ast.ClassDef) and not is_static


def _last(name: str | None) -> str:
    return (name or "").rpartition(".")[2]
