"""Groups of micro-batches: loops that add gradients up and step the optimizer once per group."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...analysis import (
    Accumulation,
    Code,
    Event,
    EventKind,
    Loop,
    TrainingLoop,
    branches_around,
    is_conditional,
    last_part,
    walk,
)
from ...sources import Document

_WRAPPERS = {"tqdm", "trange", "track", "progress", "list", "iter", "zip"}
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True)
class Group:
    """A loop that steps the optimizer only in every k-th iteration.

    Attributes:
        loop: The training loop.
        accumulation: The condition of its step.
        has_alternative: True if the step also runs under another condition, such as that of the last batch.
    """

    loop: TrainingLoop
    accumulation: Accumulation
    has_alternative: bool

    @property
    def node(self) -> ast.AST:
        """The loop, or the function or snippet if no loop is visible."""
        return self.loop.node

    def runs_always(self, code: Code, event: Event) -> bool:
        """Return True if an event happens in every iteration, not only in those that step."""
        if not code.is_inside(event.call, self.node) or is_conditional(code, event.call, self.node):
            return False
        return not (self.accumulation.skips and event.call.lineno > self.accumulation.branch.lineno)


def find_groups(document: Document) -> Iterator[Group]:
    """Yield the loops of a document that accumulate gradients under a condition."""
    for loop in document.loops:
        accumulation = loop.accumulation
        if accumulation is not None and _accumulates(document.code, loop, accumulation):
            yield Group(loop, accumulation, _has_alternative(document.code, accumulation))


def find_micro_loops(document: Document) -> Iterator[tuple[TrainingLoop, Loop]]:
    """Yield the loops over micro-batches of one update, with the step behind them."""
    code = document.code
    for loop in document.loops:
        node = loop.node
        if not loop.has_micro_loop or not isinstance(node, (ast.For, ast.AsyncFor)):
            continue
        steps = [event.call for event in loop.of(EventKind.STEP)]
        outer = next(code.loops_around(node), None)
        # A step in a loop of its own belongs to other code.
        is_behind = any(
            call.lineno > (node.end_lineno or 0) and next(code.loops_around(call), None) is outer for call in steps
        )
        is_left = any(isinstance(item, ast.Break) for item in walk(node))
        if is_behind and not is_left and not any(code.is_inside(call, node) for call in steps):
            yield loop, node


def iterated(code: Code, loop: ast.For | ast.AsyncFor) -> tuple[ast.expr, ast.expr | None]:
    """Return what a loop iterates over without progress bars, and the first number of `enumerate`; None without it."""
    node, start = _bar(code, loop.iter), None
    while isinstance(node, ast.Call) and node.args:
        name = last_part(code.call_name(node))
        if name == "enumerate" and start is None:
            first = node.args[1] if len(node.args) > 1 else None
            start = next((item.value for item in node.keywords if item.arg == "start"), first) or ast.Constant(0)
        elif name not in _WRAPPERS:
            break
        node = node.args[0]
    return node, start


def _bar(code: Code, node: ast.expr) -> ast.expr:
    """Return the progress bar or `enumerate` that a name holds; another node itself."""
    values = code.values(node) if isinstance(node, ast.Name) else []
    is_wrapper = len(values) == 1 and last_part(code.call_name(values[0])) in _WRAPPERS | {"enumerate"}
    return values[0] if is_wrapper else node


def _accumulates(code: Code, loop: TrainingLoop, accumulation: Accumulation) -> bool:
    """Return True if backward runs where no step follows; a GAN's second net under `if` runs both there."""
    if accumulation.skips:
        before = [event for event in loop.events if event.call.lineno < accumulation.branch.lineno]
        kinds = {event.kind for event in before}
        return EventKind.BACKWARD in kinds and EventKind.STEP not in kinds
    branch = accumulation.branch
    sides = {
        event.call: next(
            (side for outer, side in branches_around(code, event.call, loop.node) if outer is branch), None
        )
        for event in loop.events
    }
    steps = {sides[event.call] for event in loop.of(EventKind.STEP)}
    backwards = {sides[event.call] for event in loop.of(EventKind.BACKWARD)}
    if not steps:  # the snippet shows `...` instead
        return bool(backwards - {True})
    if len(steps - {None}) != 1:
        return False
    is_step_outside = any(
        sides[event.call] is None and not is_conditional(code, event.call, loop.node)
        for event in loop.of(EventKind.STEP)
    )
    return bool(backwards - (steps - {None})) and not is_step_outside


def _has_alternative(code: Code, accumulation: Accumulation) -> bool:
    """Return True if the condition has a second part that also lets the step run."""
    wanted = ast.And if accumulation.skips else ast.Or
    for outer in code.ancestors(accumulation.test):
        if isinstance(outer, ast.stmt):
            return False
        if isinstance(outer, ast.BoolOp) and isinstance(outer.op, wanted):
            return True
    return False


def is_loop(node: ast.AST) -> bool:
    """Return True if a node is a loop."""
    return isinstance(node, _LOOPS)
