"""Calls across functions of one document: which function a call runs, and what its arguments and results are."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence

from ._code import Code, Function, walk


class LocalCalls:
    """The functions that a document defines, and where it calls them."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._functions: dict[str, list[Function]] = defaultdict(list)
        for function in code.functions:
            self._functions[function.name].append(function)
        self._results: dict[Function, list[ast.expr]] = {}
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        for call in code.nodes(ast.Call):
            name = _local_name(call)
            if name in self._functions:
                self._calls[name].append(call)

    def function(self, call: ast.AST | None) -> Function | None:
        """Return the only function of the document that a call runs: by its name, or as a method of `self`."""
        name = _local_name(call) if isinstance(call, ast.Call) else ""
        functions = self._functions.get(name, [])
        return functions[-1] if functions else None

    def calls_of(self, function: Function) -> Sequence[ast.Call]:
        """Return the calls of a function."""
        return self._calls.get(function.name, ())

    def arguments(self, function: Function, name: str) -> list[ast.expr]:
        """Return what the calls of a function pass for one of its arguments."""
        parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        if parameters and parameters[0] in {"self", "cls"}:
            parameters = parameters[1:]
        position = parameters.index(name) if name in parameters else None
        values: list[ast.expr] = []
        for call in self.calls_of(function):
            values += [keyword.value for keyword in call.keywords if keyword.arg == name]
            if position is not None and position < len(call.args):
                values.append(call.args[position])
        return values

    def results(self, function: Function) -> Sequence[ast.expr]:
        """Return the expressions that a function returns."""
        if function not in self._results:
            returns = (node for node in walk(function) if isinstance(node, ast.Return))
            self._results[function] = [node.value for node in returns if node.value is not None]
        return self._results[function]


def default_of(function: Function, name: str) -> ast.expr | None:
    """Return the default value of an argument."""
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults = function.args.defaults
    pairs = list(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
    for argument, value in (*pairs, *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)):
        if argument.arg == name:
            return value
    return None


def called_name(node: ast.AST | None) -> str:
    """Return the last part of the name that a call uses, also of a method: `x[0].float()` → `"float"`."""
    func = node.func if isinstance(node, ast.Call) else None
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _local_name(call: ast.Call) -> str:
    """Return the name of a function or of a method of `self` that is called."""
    func = call.func
    if isinstance(func, ast.Name):
        return func.id
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in {"self", "cls"}:
        return func.attr
    return ""
