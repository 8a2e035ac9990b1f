"""Python code of a document: its tree with parents, scopes, names and places."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .._piece import PieceLine
from .._problem import Edit, Span
from ._assignments import Assignment, AssignmentTarget, find_assignments
from ._imports import BUILTIN_ALIASES, import_aliases

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
Node = TypeVar("Node", bound=ast.AST)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.Module, *_FUNCTIONS, ast.ClassDef, ast.Lambda)
_SKIPPED_FIELDS = {"ctx", "op", "ops", "type_comment", "type_ignores", "kind"}
_MAX_SOURCE_CHARS = 200


@dataclass(frozen=True)
class CodeLine:
    """A line of the joined code: its text, its place in the document, and the piece that it belongs to."""

    line: PieceLine
    cell: int | None
    piece: int


class Code:
    """All Python code of a document as one tree; positions are those of the document."""

    def __init__(self, tree: ast.Module, lines: Sequence[CodeLine]) -> None:
        self.tree = tree
        self._lines = lines
        self._parents: dict[ast.AST, ast.AST] = {}
        self._nodes: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        self._index()
        self.aliases = import_aliases((*self.nodes(ast.Import), *self.nodes(ast.ImportFrom)))
        self._assignments: dict[tuple[ast.AST, str], list[Assignment]] = defaultdict(list)
        for target in find_assignments(self._nodes):
            self._add_assignment(target)
        self._bound = {name for _, name in self._assignments}

    def _index(self) -> None:
        """Store every node by its type, in source order, and its parent."""
        stack: list[ast.AST] = [self.tree]
        parents, nodes = self._parents, self._nodes
        while stack:
            node = stack.pop()
            nodes[type(node)].append(node)
            children = child_nodes(node)
            for child in children:
                parents[child] = node
            children.reverse()
            stack += children

    def _add_assignment(self, target: AssignmentTarget) -> None:
        name = self.name(target.node)
        if name is not None:
            scope = target.scope or self.scope(target.statement)
            if name.startswith(("self.", "cls.")):
                scope = self.class_of(target.statement) or scope
            self._assignments[scope, name].append(Assignment(name, target.value, target.statement, target.kind))

    # Structure.

    def nodes(self, kind: type[Node]) -> list[Node]:
        """Return all nodes of a type in source order."""
        return self._nodes[kind]  # type: ignore[return-value]

    @property
    def functions(self) -> list[Function]:
        """All functions and methods, in source order."""
        return sorted((*self.nodes(ast.FunctionDef), *self.nodes(ast.AsyncFunctionDef)), key=lambda node: node.lineno)

    @property
    def loops(self) -> list[Loop]:
        """All loops in source order."""
        nodes: list[Loop] = [*self.nodes(ast.For), *self.nodes(ast.AsyncFor), *self.nodes(ast.While)]
        return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the node around a node; None for the tree itself."""
        return self._parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, innermost first."""
        current = self._parents.get(node)
        while current is not None:
            yield current
            current = self._parents.get(current)

    def scope(self, node: ast.AST) -> Scope:
        """Return the innermost function, class, lambda or module around a node."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, _SCOPES)), self.tree)

    def function(self, node: ast.AST) -> Function | None:
        """Return the innermost function around a node; None at the top level or in a class body."""
        for outer in self.ancestors(node):
            if isinstance(outer, _FUNCTIONS):
                return outer
            if isinstance(outer, ast.ClassDef):
                return None
        return None

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the innermost class around a node."""
        return next((outer for outer in self.ancestors(node) if isinstance(outer, ast.ClassDef)), None)

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that a node belongs to."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self._parents.get(current)
        return current if isinstance(current, ast.stmt) else self.tree.body[0]

    def loops_around(self, node: ast.AST) -> Iterator[Loop]:
        """Yield the loops around a node within its function, innermost first. A loop's iterable is outside of it."""
        inner = node
        for outer in self.ancestors(node):
            if isinstance(outer, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
                return
            if isinstance(outer, _LOOPS) and not (isinstance(outer, (ast.For, ast.AsyncFor)) and inner is outer.iter):
                yield outer
            inner = outer

    def is_inside(self, node: ast.AST, outer: ast.AST) -> bool:
        """Return True if a node is within another one."""
        return any(ancestor is outer for ancestor in self.ancestors(node))

    def piece(self, node: ast.AST) -> int:
        """Return the number of the cell or fence that a node is in: the fences of an answer may be alternatives."""
        return self._lines[_first_line(node) - 1].piece

    # Names and values.

    def name(self, node: ast.AST | None) -> str | None:
        """Return a dotted name as written: `"self.scaler.step"`; None for other expressions."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([node.id, *reversed(parts)])

    def resolve(self, node: ast.AST | None) -> str:
        """Return a dotted name with import aliases replaced: `th.cuda.amp.autocast` → `"torch.cuda.amp.autocast"`.

        Snippets often lack imports, so names such as `F` or `DataLoader` that nothing defines have their usual meaning.
        Other expressions give an empty string.
        """
        name = self.name(node)
        if name is None:
            return ""
        head, _, rest = name.partition(".")
        full = self.aliases.get(head)
        if full is None and head not in self._bound:
            full = BUILTIN_ALIASES.get(head)
        full = full or head
        return f"{full}.{rest}" if rest else full

    def call_name(self, node: ast.AST | None) -> str:
        """Return the resolved name of a call's function; an empty string if the node is no such call."""
        return self.resolve(node.func) if isinstance(node, ast.Call) else ""

    def assignments(self, name: str, node: ast.AST) -> list[Assignment]:
        """Return what a name may hold at a node: the assignments in the nearest scope that has any.

        Attributes of `self` are looked up in all methods of the class, and then in its body.
        """
        for scope in self._scopes_of(name, node):
            if assignments := self._assignments.get((scope, name)):
                return assignments
        head, _, rest = name.partition(".")
        owner = self.class_of(node) if head in {"self", "cls"} else None
        return self._assignments.get((owner, rest), []) if owner is not None else []

    def values(self, node: ast.AST) -> list[ast.expr]:
        """Return the expressions that are assigned to a name or attribute; the node itself for other expressions."""
        name = self.name(node)
        if name is None:
            return [node] if isinstance(node, ast.expr) else []
        return [
            assignment.value
            for assignment in self.assignments(name, node)
            if assignment.value is not None and assignment.kind in {"=", "with"}
        ]

    def constant(self, node: ast.AST | None) -> object:
        """Return the value of a constant, also through one simple assignment; None if unknown."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            return -value if isinstance(value, (int, float)) else None
        values = self.values(node) if isinstance(node, (ast.Name, ast.Attribute)) else []
        return values[0].value if len(values) == 1 and isinstance(values[0], ast.Constant) else None

    def _scopes_of(self, name: str, node: ast.AST) -> Iterator[ast.AST]:
        if name.startswith(("self.", "cls.")) and (owner := self.class_of(node)) is not None:
            yield owner
        scope: ast.AST = node if isinstance(node, _SCOPES) else self.scope(node)
        is_innermost = True
        while True:
            # Methods don't see the names of their class.
            if is_innermost or not isinstance(scope, ast.ClassDef):
                yield scope
            if isinstance(scope, ast.Module):
                return
            scope, is_innermost = self.scope(scope), False

    # Places.

    def span(self, node: ast.AST) -> Span:
        """Return the place of a node in the document."""
        line, column = self._position(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end_line, end_column = self._position(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return Span(self._lines[node.lineno - 1].cell, line, column, end_line, end_column)  # type: ignore[attr-defined]

    def source(self, node: ast.AST) -> str:
        """Return the source of a node on one line, shortened, for messages."""
        text = " ".join(ast.unparse(node).split())
        return text if len(text) <= _MAX_SOURCE_CHARS else f"{text[: _MAX_SOURCE_CHARS - 1]}…"

    def replace(self, node: ast.AST, text: str) -> Edit:
        """Return the edit that replaces a node."""
        return Edit(self.span(node), text)

    def insert_before(self, node: ast.AST, text: str) -> Edit:
        """Return the edit that inserts a text in front of a node."""
        span = self.span(node)
        return Edit(Span(span.cell, span.line, span.column, span.line, span.column), text)

    def insert_after(self, node: ast.AST, text: str) -> Edit:
        """Return the edit that inserts a text after a node."""
        span = self.span(node)
        return Edit(Span(span.cell, span.end_line, span.end_column, span.end_line, span.end_column), text)

    def _position(self, line: int, column: int) -> tuple[int, int]:
        """Return line and column in the document; the tree counts columns in bytes of UTF-8."""
        place = self._lines[line - 1].line
        text = place.text
        if not text.isascii():
            column = len(text.encode()[:column].decode(errors="ignore"))
        return place.line, place.column + column


def child_nodes(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below a node, in source order."""
    children: list[ast.AST] = []
    for name in node._fields:
        if name in _SKIPPED_FIELDS:
            continue
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            children.append(value)
        elif isinstance(value, list):
            children += [item for item in value if isinstance(item, ast.AST)]
    return children


def walk(node: ast.AST, *, into_functions: bool = False) -> Iterator[ast.AST]:
    """Yield a node and all nodes below it in source order; bodies of nested functions and classes only on request."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        if current is not node and not into_functions and isinstance(current, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        stack += reversed(child_nodes(current))


def _first_line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))
