"""Rule `last-group-not-stepped`: the micro-batches after the last full group are never applied."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, EventKind, events_in, last_part, walk
from ...sources import Document
from ._accumulation_counter import counter_mistake, is_off_by_one
from ._counter import Counter, first_count, read_counter
from ._groups import Group, find_groups, iterated

_ENDLESS = {"cycle", "islice", "count", "repeat", "range", "infinite", "inf_loop"}
_STEPPING = re.compile(r"step|flush|update|apply|optim", re.IGNORECASE)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for group in find_groups(document):
        counter = read_counter(code, group.accumulation) or _restarted_counter(code, group)
        if code.constant(group.accumulation.every) == 1:
            continue
        if group.has_alternative:
            yield from _unreached(code, group, counter)
            continue
        if counter_mistake(code, group) and not is_off_by_one(code, group):
            continue
        if not _starts_again(code, group, counter) or _handles_rest(code, group):
            continue
        every = group.accumulation.every
        size = code.source(every) if every is not None else "k"
        message = (
            f"micro-batches after the last full group of {size} are never applied: also step after the last "
            f"one{_advice(code, group, counter)}"
        )
        yield Problem(code.span(group.accumulation.test), message)


def _restarted_counter(code: Code, group: Group) -> Counter | None:
    """Return the counter of `if count == k`, which starts again after each step."""
    node = group.accumulation.counter
    name = code.name(node)
    return Counter(name, node, 0, 0) if name is not None and isinstance(node, ast.Name) else None


def _starts_again(code: Code, group: Group, counter: Counter | None) -> bool:
    """Return True if groups are counted within one pass over a loader, so that the pass may end within a group."""
    node = group.node
    if isinstance(node, ast.Module):
        return _has_backward(group)
    if counter is None or not isinstance(node, (ast.For, ast.AsyncFor)):
        return False
    source, start = iterated(code, node)
    name = last_part(code.call_name(source))
    is_length = name == "range" and any(last_part(code.call_name(item)) == "len" for item in ast.walk(source))
    if name in _ENDLESS and not (is_length and len(getattr(source, "args", ())) == 1):
        return False
    targets = {target.id for target in ast.walk(node.target) if isinstance(target, ast.Name)}
    if counter.name in targets:
        return start is not None or is_length
    return _is_reset(code, group, counter)


def _is_reset(code: Code, group: Group, counter: Counter) -> bool:
    """Return True if a counter is set to a number before each pass over the loader."""
    if not isinstance(counter.node, ast.Name):
        return False
    epochs = next(code.loops_around(group.node), None)
    starts = [
        assignment.statement
        for assignment in code.assignments(counter.name, counter.node)
        if assignment.kind == "=" and not code.is_inside(assignment.statement, group.node)
    ]
    if not starts:
        return False
    return epochs is None or any(code.is_inside(start, epochs) for start in starts)


def _has_backward(group: Group) -> bool:
    return any(event.kind is EventKind.BACKWARD for event in group.loop.events)


def _handles_rest(code: Code, group: Group) -> bool:
    """Return True if something else steps: another step, a call behind the loop, or a test of what is left over."""
    branch = group.accumulation.branch
    outside: ast.AST = code.function(branch) or code.tree
    piece = code.piece(branch)
    events = list(events_in(code, outside)) if group.loop.of(EventKind.STEP) else []
    trained = {code.piece(event.call) for event in events if event.kind is EventKind.BACKWARD}
    for event in events:
        is_here = outside is not code.tree or code.piece(event.call) >= piece
        if event.kind is not EventKind.STEP or not is_here or code.is_inside(event.call, branch):
            continue
        if group.accumulation.skips and code.is_inside(event.call, group.node):
            continue
        # A later fence with a backward of its own is another program, not the end of this one.
        is_other = code.piece(event.call) > piece and (
            next(code.loops_around(event.call), None) is not None or code.piece(event.call) in trained
        )
        if not is_other:
            return True
    return any(_concerns_rest(code, group, node) for node in walk(outside) if code.piece(node) == piece)


def _concerns_rest(code: Code, group: Group, node: ast.AST) -> bool:
    """Return True for `len(loader) % k`, a `break` before an incomplete group, and `flush()` behind the loop."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not isinstance(node.left, ast.Constant):
        lengths = (item for item in ast.walk(node.left) if last_part(code.call_name(item)) == "len")
        return next(lengths, None) is not None and code.piece(node) == code.piece(group.accumulation.branch)
    if isinstance(node, ast.Break):
        owner = code.parent(node)
        every = group.accumulation.every
        return isinstance(owner, ast.If) and every is not None and ast.unparse(every) in ast.unparse(owner.test)
    end = getattr(group.node, "end_lineno", None)
    if isinstance(node, ast.Call) and end is not None and node.lineno > end:
        if code.piece(node) != code.piece(group.accumulation.branch):
            return False
        kinds = {EventKind.SCHEDULER_STEP}
        is_scheduler = any(event.call is node for event in events_in(code, node) if event.kind in kinds)
        return not is_scheduler and _STEPPING.search(last_part(code.call_name(node))) is not None
    return False


def _advice(code: Code, group: Group, counter: Counter | None) -> str:
    """Return the whole condition in the names of the loop; for counters that aren't the loop's, the place."""
    node = group.node
    if not isinstance(node, (ast.For, ast.AsyncFor)) or counter is None:
        return ""
    source, start = iterated(code, node)
    if start is None or counter.name not in {item.id for item in ast.walk(node.target) if isinstance(item, ast.Name)}:
        return ", behind the loop"
    loader = code.name(source) or "loader"
    first = first_count(code, group, counter)
    shift = 1 - first if first is not None else int(counter.remainder != 0 or counter.offset == 1)
    count = f"{counter.name} {'+' if shift > 0 else '-'} {abs(shift)}" if shift else counter.name
    every, test = group.accumulation.every, code.source(group.accumulation.test)
    if is_off_by_one(code, group) and every is not None:
        equals = "!=" if group.accumulation.skips else "=="
        test = f"{f'({count})' if shift else count} % {code.source(every)} {equals} 0"
    if group.accumulation.skips:
        return f", as in `if {test} and {count} != len({loader})`"
    return f", as in `if {test} or {count} == len({loader})`"


def _unreached(code: Code, group: Group, counter: Counter | None) -> Iterator[Problem]:
    """Yield a test of the last micro-batch with a counter that starts at 0, and so never reaches the length."""
    if counter is None or first_count(code, group, counter) != 0:
        return
    condition = next(item for item in code.ancestors(group.accumulation.test) if isinstance(item, ast.BoolOp))
    for test in condition.values:
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
            continue
        is_length = last_part(code.call_name(test.comparators[0])) == "len"
        if is_length and code.name(test.left) == counter.name:
            name, length = counter.name, code.source(test.comparators[0])
            message = (
                f"{name} ends at {length} - 1, so that micro-batches after the last full group are never applied: "
                f"compare {name} + 1 with {length}"
            )
            yield Problem(code.span(test), message)


LAST_GROUP_NOT_STEPPED = Rule(
    "last-group-not-stepped",
    RuleFamily.ACCUMULATION,
    "The micro-batches after the last full group are never applied",
    _check,
    triggers=("backward",),
)
