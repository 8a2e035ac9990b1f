"""Edits that remove statements."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ._problem import Edit, Span
from .analysis import Code
from .sources import split_lines

_BLOCKS = ("body", "orelse", "finalbody")


def remove_statements(
    code: Code, sources: Mapping[int | None, str], statements: Iterable[ast.stmt]
) -> tuple[Edit, ...]:
    """Return the edits that remove statements, each with its semicolon; a block that would be empty gets `pass`."""
    waiting = list(statements)
    edits: list[Edit] = []
    while waiting:
        parent = code.parent(waiting[0])
        block = _block(parent, waiting[0])
        is_all = set(block) <= set(waiting) and not isinstance(parent, ast.Module)
        for number, run in enumerate(_runs(block, set(waiting))):
            edits.append(_edit(code, sources, block, run, "pass" if is_all and not number else ""))
        waiting = [item for item in waiting if item not in block]
    return tuple(edits)


def _block(parent: ast.AST | None, statement: ast.stmt) -> list[ast.stmt]:
    """Return the statements of the block that a statement is in."""
    blocks = [getattr(parent, name, None) for name in _BLOCKS]
    return next((block for block in blocks if isinstance(block, list) and statement in block), [statement])


def _runs(block: Sequence[ast.stmt], removed: set[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield the removed statements of a block; those that share a line with the one before them are together."""
    run: list[ast.stmt] = []
    for statement in block:
        if run and not (statement in removed and _share_line(run[-1], statement)):
            yield run
            run = []
        if statement in removed:
            run.append(statement)
    if run:
        yield run


def _share_line(first: ast.stmt, second: ast.stmt) -> bool:
    return first.end_lineno == second.lineno


def _edit(
    code: Code, sources: Mapping[int | None, str], block: Sequence[ast.stmt], run: Sequence[ast.stmt], text: str
) -> Edit:
    first, last = code.span(run[0]), code.span(run[-1])
    start, end = (first.line, first.column), (last.end_line, last.end_column)
    before, after = block[: block.index(run[0])], block[block.index(run[-1]) + 1 :]
    if not text and after and _share_line(run[-1], after[0]):
        following = code.span(after[0])
        end = following.line, following.column
    elif not text and before and _share_line(before[-1], run[0]):
        preceding = code.span(before[-1])
        start = preceding.end_line, preceding.end_column
    elif not text:
        end = end[0], end[1] + _semicolon(sources.get(last.cell, ""), last)
    return Edit(Span(first.cell, *start, *end), text)


def _semicolon(source: str, span: Span) -> int:
    """Return how many characters behind a span end with a semicolon."""
    rest = split_lines(source)[span.end_line - 1][span.end_column :]
    return len(rest) - len(rest.lstrip()) + 1 if rest.lstrip().startswith(";") else 0
