"""Branches: which code runs only under a condition, and which code never runs together with other code."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ._code import Code

_LEAVING = (ast.Continue, ast.Break, ast.Return, ast.Raise)


def branches_around(code: Code, node: ast.AST, region: ast.AST | None = None) -> Iterator[tuple[ast.If, bool]]:
    """Yield the `if` statements around a node up to a region, innermost first; True if the node is in the body."""
    inner = node
    for outer in code.ancestors(node):
        if outer is region:
            return
        if isinstance(outer, ast.If) and inner is not outer.test:
            yield outer, any(inner is item for item in outer.body)
        inner = outer


def is_conditional(code: Code, node: ast.AST, region: ast.AST) -> bool:
    """Return True if an `if` or an exception within a region decides whether a node runs."""
    if next(branches_around(code, node, region), None) is not None:
        return True
    for outer in code.ancestors(node):
        if outer is region:
            return False
        if isinstance(outer, ast.ExceptHandler):
            return True
    return False


def are_exclusive(code: Code, first: ast.AST, second: ast.AST) -> bool:
    """Return True if two nodes never run in the same pass: they are in different branches of an `if`.

    A branch that ends with `continue`, `return` or the like is never in one pass with the code behind it.
    """
    sides = dict(branches_around(code, first))
    others = dict(branches_around(code, second))
    if any(other in sides and sides[other] is not side for other, side in others.items()):
        return True
    return _leaves_before(code, sides, second, others) or _leaves_before(code, others, first, sides)


def _leaves_before(code: Code, sides: dict[ast.If, bool], node: ast.AST, others: dict[ast.If, bool]) -> bool:
    """Return True if a branch in `sides` leaves the loop or function before it comes to the node."""
    line = getattr(node, "lineno", 0)
    for branch, is_body in sides.items():
        last = (branch.body if is_body else branch.orelse)[-1]
        is_behind = branch not in others and line > (branch.end_lineno or 0)
        if is_behind and isinstance(last, _LEAVING) and code.is_inside(node, _left(code, last)):
            return True
    return False


def _left(code: Code, statement: ast.stmt) -> ast.AST:
    """Return what a statement leaves: an iteration of a loop, or a function."""
    loop = next(code.loops_around(statement), None)
    if isinstance(statement, (ast.Continue, ast.Break)) and loop is not None:
        return loop
    return code.function(statement) or code.tree
