"""Code that steps an optimizer through a gradient scaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...analysis import Code, Event, EventKind, are_exclusive, events_in, is_scaler, last_part
from ...sources import Document
from ._autocast import is_enabled


@dataclass(frozen=True)
class ScaledRegion:
    """A loop, function or snippet that uses a gradient scaler.

    Attributes:
        node: The code.
        events: Its events in source order.
        piece: The number of its cell or fence.
    """

    node: ast.AST
    events: tuple[Event, ...]
    piece: int

    def of(self, kind: EventKind) -> list[Event]:
        """Return the events of a kind."""
        return [event for event in self.events if event.kind is kind]

    def after(self, code: Code, event: Event, kind: EventKind) -> Iterator[Event]:
        """Yield the events of a kind that follow another one in the same pass."""
        position = self.events.index(event)
        for other in self.events[position + 1 :]:
            if other.kind is kind and not are_exclusive(code, event.call, other.call):
                yield other

    def before(self, code: Code, event: Event, kind: EventKind) -> Iterator[Event]:
        """Yield the events of a kind that precede another one in the same pass, the nearest first."""
        position = self.events.index(event)
        for other in reversed(self.events[:position]):
            if other.kind is kind and not are_exclusive(code, event.call, other.call):
                yield other


def scaled_regions(document: Document) -> Iterator[ScaledRegion]:
    """Yield the regions that use a scaler, each once; code that only steps belongs to its loop or function."""
    code = document.code
    covered: set[ast.Call] = set()
    seen: set[tuple[ast.AST, int]] = set()
    for loop in document.loops:
        if not any(event.scaler for event in loop.events):
            continue
        piece = code.piece(loop.events[0].call)
        if (loop.update, piece) not in seen:
            seen.add((loop.update, piece))
            covered |= {event.call for event in loop.events}
            yield ScaledRegion(loop.update, loop.events, piece)
    for call in code.nodes(ast.Call):
        if not _is_scaler_step(code, call) or call in covered:
            continue
        node: ast.AST = next(code.loops_around(call), None) or code.function(call) or code.tree
        piece = code.piece(call)
        events = tuple(
            event for event in events_in(code, node) if node is not code.tree or code.piece(event.call) == piece
        )
        covered |= {event.call for event in events}
        yield ScaledRegion(node, events, piece)


def scaler_creations(code: Code) -> list[ast.Call]:
    """Return the calls that create a gradient scaler, unless a constant switches it off."""
    return [
        call
        for call in code.nodes(ast.Call)
        if last_part(code.call_name(call)) in {"GradScaler", "ShardedGradScaler"} and is_enabled(code, call)
    ]


def _is_scaler_step(code: Code, call: ast.Call) -> bool:
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr == "step" and is_scaler(code, func.value)
