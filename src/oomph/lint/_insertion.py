"""Edits that add or move whole lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from ._problem import Edit, Span
from .analysis import Code

_MARGIN = re.compile(r"[\s>]*")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_ENDING = re.compile(r"[\r\n]*$")


class LineInserter:
    """Inserts statements before or after others, in the lines of a document."""

    def __init__(self, code: Code, sources: Mapping[int | None, str]) -> None:
        self._code = code
        self._sources = sources

    def before(self, statement: ast.stmt, text: str) -> tuple[Edit, ...]:
        """Return the edit that inserts a statement before another; nothing if that doesn't begin its line."""
        span = self._code.span(statement)
        line = self._line(span.cell, span.line)
        margin = line[: span.column]
        if not _MARGIN.fullmatch(margin):
            return ()
        return (Edit(Span(span.cell, span.line, span.column, span.line, span.column), f"{text}{_end(line)}{margin}"),)

    def after(self, statement: ast.stmt, text: str) -> tuple[Edit, ...]:
        """Return the edit that inserts a statement after another; nothing if that shares its lines with others."""
        span = self._code.span(statement)
        margin = self._line(span.cell, span.line)[: span.column]
        line = self._line(span.cell, span.end_line)
        bare = line.rstrip("\r\n")
        rest = bare[span.end_column :].strip()
        if not _MARGIN.fullmatch(margin) or (rest and not rest.startswith("#")):
            return ()
        place = Span(span.cell, span.end_line, len(bare), span.end_line, len(bare))
        return (Edit(place, f"{_end(line)}{margin}{text}"),)

    def _line(self, cell: int | None, number: int) -> str:
        lines = _LINE.findall(self._sources.get(cell, ""))
        return lines[number - 1] if 0 < number <= len(lines) else ""


def _end(line: str) -> str:
    """Return the line end to insert, that of the line itself."""
    match = _ENDING.search(line)
    return (match[0] if match else "") or "\n"
