"""Assignments: which statements give a name its value."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Nodes = Mapping[type[ast.AST], Sequence[ast.AST]]


@dataclass(frozen=True)
class Assignment:
    """A value that a name receives.

    Attributes:
        name: The name as written: `"loss"`, `"self.scaler"`.
        value: The expression; None where none is written (an argument, part of a sequence).
        statement: The statement that assigns.
        kind: "=", "+=" (any operator), "for", "with", "def" (function or class), "argument" or "except".
    """

    name: str
    value: ast.expr | None
    statement: ast.AST
    kind: str = "="


@dataclass(frozen=True)
class AssignmentTarget:
    """A target of an assignment before its name and scope are known.

    Attributes:
        node: The target: a name or attribute.
        value: The expression that it receives; None where none is written.
        statement: The statement.
        kind: As in `Assignment`.
        scope: The scope of the name; None if it is the one around the statement.
    """

    node: ast.expr
    value: ast.expr | None
    statement: ast.AST
    kind: str
    scope: ast.AST | None = None


def find_assignments(nodes: Nodes) -> Iterator[AssignmentTarget]:
    """Yield all targets of assignments, in source order within each kind of statement."""
    yield from _from_statements(nodes)
    yield from _from_blocks(nodes)
    yield from _from_definitions(nodes)


def _from_statements(nodes: Nodes) -> Iterator[AssignmentTarget]:
    for node in nodes.get(ast.Assign, ()):
        assert isinstance(node, ast.Assign)  # noqa: S101  by its key
        for target in node.targets:
            yield from _unpack(AssignmentTarget(target, node.value, node, "="))
    for kind, operator in ((ast.AnnAssign, "="), (ast.NamedExpr, "="), (ast.AugAssign, "+=")):
        for node in nodes.get(kind, ()):
            assert isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign))  # noqa: S101  by its key
            yield AssignmentTarget(node.target, node.value, node, operator)


def _from_blocks(nodes: Nodes) -> Iterator[AssignmentTarget]:
    for loop in (*nodes.get(ast.For, ()), *nodes.get(ast.AsyncFor, ())):
        assert isinstance(loop, (ast.For, ast.AsyncFor))  # noqa: S101  by its key
        yield from _unpack(AssignmentTarget(loop.target, loop.iter, loop, "for"))
    for block in (*nodes.get(ast.With, ()), *nodes.get(ast.AsyncWith, ())):
        assert isinstance(block, (ast.With, ast.AsyncWith))  # noqa: S101  by its key
        for item in block.items:
            if item.optional_vars is not None:
                yield from _unpack(AssignmentTarget(item.optional_vars, item.context_expr, block, "with"))


def _from_definitions(nodes: Nodes) -> Iterator[AssignmentTarget]:
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        for node in nodes.get(kind, ()):
            assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))  # noqa: S101  by its key
            yield AssignmentTarget(ast.Name(node.name), None, node, "def")
            if not isinstance(node, ast.ClassDef):
                arguments = node.args
                for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                    yield AssignmentTarget(ast.Name(argument.arg), None, node, "argument", node)
    for handler in nodes.get(ast.ExceptHandler, ()):
        assert isinstance(handler, ast.ExceptHandler)  # noqa: S101  by its key
        if handler.name is not None:
            yield AssignmentTarget(ast.Name(handler.name), None, handler, "except")


def _unpack(target: AssignmentTarget) -> Iterator[AssignmentTarget]:
    """Yield the targets in a tuple or list, with their values where the other side is one as well."""
    node, value = target.node, target.value
    if isinstance(node, (ast.Tuple, ast.List)):
        values: list[ast.expr | None] = [None] * len(node.elts)
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(node.elts) and target.kind == "=":
            values = list(value.elts)
        for element, part in zip(node.elts, values, strict=True):
            yield from _unpack(AssignmentTarget(element, part, target.statement, target.kind))
    elif isinstance(node, ast.Starred):
        yield from _unpack(AssignmentTarget(node.value, None, target.statement, target.kind))
    else:
        yield target
