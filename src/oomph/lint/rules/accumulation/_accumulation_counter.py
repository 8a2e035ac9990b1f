"""Rule `accumulation-counter`: the counter of micro-batches is undefined, doesn't change or is off by one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, EventKind, branches_around
from ...sources import Document
from ._counter import Counter, changes, first_count, read_counter, runs_at_remainder
from ._groups import Group, find_groups, is_loop


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for group in find_groups(document):
        message = counter_mistake(code, group)
        if message is not None:
            yield Problem(code.span(group.accumulation.test), message)


def counter_mistake(code: Code, group: Group) -> str | None:
    """Return what is wrong with the counter of a group; None if nothing is known to be."""
    counter = read_counter(code, group.accumulation)
    test = code.source(group.accumulation.test)
    if counter is None:
        return _mistake_of_count(code, group, test)
    if not is_loop(group.node) or code.constant(group.accumulation.every) == 1:
        return None
    if _is_undefined(code, counter):
        return (
            f"{counter.name} in `if {test}` is defined nowhere: count the micro-batches with "
            "`for i, batch in enumerate(loader)` and test (i + 1)"
        )
    if _is_stuck(code, group, counter):
        return (
            f"{counter.name} in `if {test}` is the same in every iteration of this loop: increase it before the "
            "test, or use enumerate"
        )
    return _off_by_one(code, group, counter, test)


def is_off_by_one(code: Code, group: Group) -> bool:
    """Return True if the counter counts, but the groups begin one too early."""
    counter = read_counter(code, group.accumulation)
    if counter is None or not is_loop(group.node) or _is_undefined(code, counter) or _is_stuck(code, group, counter):
        return False
    return _off_by_one(code, group, counter, "") is not None


def _mistake_of_count(code: Code, group: Group, test: str) -> str | None:
    """Return what is wrong with the counter of `if count == k`: nothing increases it, or each iteration resets it."""
    node = group.accumulation.counter
    name = code.name(node)
    if name is None or not isinstance(group.accumulation.test, ast.Compare):
        return None
    assignments = code.assignments(name, node)
    counter = Counter(name, node, 0, 0)
    numbers = [item for item in assignments if item.kind == "=" and isinstance(item.value, ast.Constant)]
    is_known = isinstance(node, ast.Name) or _is_own_attribute(code, counter)
    if not assignments or not is_known or _is_shared(code, counter):
        return None
    if len(numbers) == len(assignments):
        return f"{name} in `if {test}` is never increased, so that the optimizer never steps: add 1 before the test"
    start = next((item.statement for item in numbers if code.parent(item.statement) is group.node), None)
    if start is not None and is_loop(group.node) and getattr(start, "lineno", 0) < group.accumulation.branch.lineno:
        return f"{name} in `if {test}` starts again in every iteration of this loop: set it before the loop"
    return None


def _is_undefined(code: Code, counter: Counter) -> bool:
    is_name = isinstance(counter.node, ast.Name)
    is_imported = counter.name in code.aliases or "*" in code.aliases
    return is_name and not is_imported and not code.assignments(counter.name, counter.node)


def _is_stuck(code: Code, group: Group, counter: Counter) -> bool:
    assignments = code.assignments(counter.name, counter.node)
    if not assignments or _is_shared(code, counter):
        return False
    if not changes(code, group.loop, counter.node, counter.name):
        return isinstance(counter.node, ast.Name) or _is_private(code, counter)
    inside = [item.statement for item in assignments if code.is_inside(item.statement, group.node)]
    branch = group.accumulation.branch
    is_only_in_branch = bool(inside) and all(code.is_inside(statement, branch) for statement in inside)
    return is_only_in_branch and not group.accumulation.skips and not group.has_alternative


def _is_shared(code: Code, counter: Counter) -> bool:
    """Return True if another function may change the counter."""
    shared: list[ast.Global | ast.Nonlocal] = [*code.nodes(ast.Global), *code.nodes(ast.Nonlocal)]
    return any(counter.name in node.names for node in shared)


def _is_private(code: Code, counter: Counter) -> bool:
    """Return True if an attribute belongs to a class that is all there is, and is set only once."""
    assignments = code.assignments(counter.name, counter.node)
    return _is_own_attribute(code, counter) and len(assignments) == 1 and assignments[0].kind == "="


def _is_own_attribute(code: Code, counter: Counter) -> bool:
    """Return True for an attribute of a class without bases, which only the class itself is likely to set."""
    owner = code.class_of(counter.node)
    is_self = counter.name.startswith("self.") and counter.name.count(".") == 1
    return is_self and owner is not None and not owner.bases


def _off_by_one(code: Code, group: Group, counter: Counter, test: str) -> str | None:
    first = first_count(code, group, counter)
    if first is None or _is_combined(code, group) or _steps_before_backward(group):
        return None
    sides = [side for outer, side in _step_branches(code, group) if outer is group.accumulation.branch]
    if not runs_at_remainder(group.accumulation, in_body=all(sides)):
        return None
    distance = counter.remainder - counter.offset - first  # from the first micro-batch to the first step
    every = code.constant(group.accumulation.every)
    if isinstance(every, int) and every > 0:
        distance = (distance + 1) % every - 1
    if distance == -1:
        return None
    shift = 1 - first
    right = f"({counter.name} {'+' if shift > 0 else '-'} {abs(shift)})" if shift else counter.name
    when = "after the first micro-batch" if distance == 0 else "before the first group is full"
    size = code.source(group.accumulation.every) if group.accumulation.every is not None else "k"
    return f"`if {test}` steps {when} already: test {right} % {size} == 0"


def _is_combined(code: Code, group: Group) -> bool:
    """Return True if the condition has a further part that may exclude the first micro-batch."""
    excluding = ast.Or if group.accumulation.skips else ast.And
    for outer in code.ancestors(group.accumulation.test):
        if isinstance(outer, ast.stmt):
            return False
        if isinstance(outer, ast.BoolOp) and isinstance(outer.op, excluding):
            return True
    return False


def _steps_before_backward(group: Group) -> bool:
    """Return True if the step of the group before comes first in the loop."""
    lines = [event.call.lineno for event in group.loop.of(EventKind.BACKWARD)]
    return min(lines, default=0) > group.accumulation.branch.lineno


def _step_branches(code: Code, group: Group) -> Iterator[tuple[ast.If, bool]]:
    for event in group.loop.of(EventKind.STEP):
        yield from branches_around(code, event.call, group.node)


ACCUMULATION_COUNTER = Rule(
    "accumulation-counter",
    RuleFamily.ACCUMULATION,
    "The counter of micro-batches is undefined, never changes or is off by one",
    _check,
    triggers=("backward",),
)
