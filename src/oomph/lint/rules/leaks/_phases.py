"""Loops that train in one phase and evaluate in another: `for phase in ["train", "val"]`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...analysis import (
    Code,
    branches_around,
    calls_of,
    gradients_are_off,
    model_calls,
    training_calls,
    walk,
)


def phase_loops(code: Code) -> Iterator[tuple[ast.For | ast.AsyncFor, ast.Call]]:
    """Yield the loops over batches that run backward only in one phase, with the model's call, if gradients stay on.

    The same condition switches the model to evaluation, so the code itself says that the other phase evaluates.
    """
    seen: set[ast.AST] = set()
    for backward in sorted(training_calls(code), key=lambda call: call.lineno):
        loop = next(code.loops_around(backward), None)
        if not isinstance(loop, (ast.For, ast.AsyncFor)) or loop in seen:
            continue
        conditions = [
            ast.unparse(test)
            for branch, is_body in branches_around(code, backward, loop)
            if is_body
            for test in (branch.test, *code.values(branch.test))
        ]
        if not any(_switches_mode(code, loop, condition) for condition in conditions):
            continue
        seen.add(loop)
        for call in sorted(model_calls(code), key=lambda call: call.lineno):
            is_shared = code.is_inside(call, loop) and next(branches_around(code, call, loop), None) is None
            if is_shared and not gradients_are_off(code, call):
                yield loop, call
                break


def _switches_mode(code: Code, loop: ast.AST, condition: str) -> bool:
    """Return True if a condition of the same function decides between train() and eval(), or is train()'s argument."""
    function = code.function(loop)
    for call in calls_of(code, "train"):
        is_method = isinstance(call.func, ast.Attribute) and code.function(call) is function
        parent = code.parent(call)
        tests = list(call.args) if len(call.args) == 1 else []
        if isinstance(parent, ast.IfExp) and parent.body is call:
            tests.append(parent.test)
        if is_method and any(condition in {ast.unparse(v) for v in (test, *code.values(test))} for test in tests):
            return True
    for call in calls_of(code, "eval"):
        if not isinstance(call.func, ast.Attribute) or call.args or code.function(call) is not function:
            continue
        for branch, is_body in branches_around(code, call):
            if ast.unparse(branch.test) == condition and not is_body:
                return _calls_train(branch)
    return False


def _calls_train(branch: ast.If) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "train"
        for statement in branch.body
        for node in walk(statement)
    )
