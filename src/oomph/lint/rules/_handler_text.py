"""The text of a handler with its comments, which the tree doesn't have."""

from __future__ import annotations

import ast

from ..sources import Document, split_lines


def handler_text(document: Document, handler: ast.ExceptHandler) -> str:
    """Return the lines of a handler, and a comment directly above it."""
    span = document.code.span(handler)
    lines = split_lines(document.sources.get(span.cell, ""))
    first = span.line - 1
    if first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return "".join(lines[first : span.end_line])
