"""The counter of micro-batches: where it starts, and after how many of them the first step comes."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ...analysis import Accumulation, Assignment, Code, TrainingLoop, last_part
from ._groups import Group, iterated


@dataclass(frozen=True)
class Counter:
    """A counter in the condition of a step: `name + offset`, compared with `remainder` modulo k.

    Attributes:
        name: The variable.
        node: Its use in the condition.
        offset: A number that is added to it.
        remainder: The number that the modulo must equal; negative if it is counted from k.
    """

    name: str
    node: ast.expr
    offset: int
    remainder: int


def read_counter(code: Code, accumulation: Accumulation) -> Counter | None:
    """Return the counter of a condition with a modulo; None if it has another form."""
    test = accumulation.test
    if isinstance(test, ast.UnaryOp):
        remainder: int | None = 0
    elif isinstance(test, ast.Compare) and len(test.comparators) == 1:
        is_left = isinstance(test.left, ast.BinOp) and isinstance(test.left.op, ast.Mod)
        remainder = _remainder(code, test.comparators[0] if is_left else test.left, accumulation.every)
        if not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
            return None
        if not is_left and not (isinstance(test.comparators[0], ast.BinOp)):
            return None
    elif isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod):
        remainder = 0
    else:
        return None
    parts = _offset(accumulation.counter)
    name = code.name(parts[0]) if parts else None
    if remainder is None or parts is None or name is None:
        return None
    return Counter(name, parts[0], parts[1], remainder)


def runs_at_remainder(accumulation: Accumulation, *, in_body: bool) -> bool:
    """Return True if the step runs where the modulo equals the remainder, not where it differs."""
    test = accumulation.test
    differs = isinstance(test, ast.BinOp) or (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq))
    return differs is (accumulation.skips or not in_body)


def first_count(code: Code, group: Group, counter: Counter) -> int | None:
    """Return the counter's value at the test of the first iteration; None if unknown."""
    for loop in code.loops_around(group.accumulation.branch):
        if isinstance(loop, (ast.For, ast.AsyncFor)) and counter.name in _target_names(code, loop):
            return _first_index(code, loop, counter.name) if loop is group.node else None
    increases, starts = [], []
    for assignment in code.assignments(counter.name, counter.node):
        if code.is_inside(assignment.statement, group.node):
            increases.append(assignment)
        elif assignment.kind == "=" and isinstance(assignment.value, ast.Constant):
            starts.append(assignment.value.value)
        else:
            return None
    if len(increases) != 1 or not starts or len(set(starts)) != 1 or not isinstance(starts[0], int):
        return None
    if not _adds_one(increases[0]) or code.parent(increases[0].statement) is not group.node:
        return None
    is_before = increases[0].statement.lineno < group.accumulation.branch.lineno  # type: ignore[attr-defined]
    return starts[0] + 1 if is_before else starts[0]


def changes(code: Code, loop: TrainingLoop, counter: ast.expr, name: str) -> bool:
    """Return True if a counter may change between the iterations of a loop."""
    for outer in code.loops_around(counter):
        if outer is loop.node and isinstance(outer, (ast.For, ast.AsyncFor)) and name in _target_names(code, outer):
            return True
    return any(
        code.is_inside(assignment.statement, loop.node) and assignment.statement is not loop.node
        for assignment in code.assignments(name, counter)
    )


def _target_names(code: Code, loop: ast.For | ast.AsyncFor) -> set[str]:
    return {name for node in ast.walk(loop.target) if isinstance(node, ast.Name) and (name := code.name(node))}


def _first_index(code: Code, loop: ast.For | ast.AsyncFor, name: str) -> int | None:
    """Return the first index of `enumerate` or `range`."""
    source, start = iterated(code, loop)
    target = loop.target
    if start is not None:
        is_index = isinstance(target, ast.Tuple) and code.name(target.elts[0]) == name
        value = code.constant(start)
        return value if is_index and isinstance(value, int) else None
    if code.name(target) != name or last_part(code.call_name(source)) not in {"range", "trange"}:
        return None
    arguments = source.args if isinstance(source, ast.Call) else []
    if len(arguments) == 1:
        return 0
    has_stride = len(arguments) > len(("start", "stop"))
    value = code.constant(arguments[0]) if arguments and not has_stride else None
    return value if isinstance(value, int) else None


def _adds_one(assignment: Assignment) -> bool:
    value = assignment.value
    if isinstance(assignment.statement, ast.AugAssign):
        is_sum = isinstance(assignment.statement.op, ast.Add)
        return is_sum and isinstance(value, ast.Constant) and value.value == 1
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return any(isinstance(side, ast.Constant) and side.value == 1 for side in (value.left, value.right))
    return False


def _offset(node: ast.expr) -> tuple[ast.expr, int] | None:
    """Return variable and number of `i`, `i + 1`, `1 + i` or `i - 1`."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        return node, 0
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Sub)):
        return None
    for variable, number in ((node.left, node.right), (node.right, node.left)):
        is_number = isinstance(number, ast.Constant) and isinstance(number.value, int)
        if is_number and isinstance(variable, (ast.Name, ast.Attribute)):
            value = int(number.value)  # type: ignore[attr-defined]
            if isinstance(node.op, ast.Add):
                return variable, value
            return (variable, -value) if variable is node.left else None
    return None


def _remainder(code: Code, node: ast.expr, every: ast.expr | None) -> int | None:
    """Return 0, 3 or -1 (for `k - 1`)."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Constant):
        is_same = every is not None and ast.dump(node.left) == ast.dump(every)
        return -node.right.value if is_same and isinstance(node.right.value, int) else None
    value = code.constant(node)
    return value if isinstance(value, int) else None
