"""Joins the Python pieces of a document into one tree."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from .._piece import Piece
from ._code import Code, CodeLine
from ._repair import parse_lines


def build_code(pieces: Sequence[Piece]) -> tuple[Code, list[Piece]]:
    """Return the code of all pieces, in order, and the pieces that are no Python.

    Pieces share names, as the cells of a notebook do.
    """
    lines: list[CodeLine] = []
    body: list[ast.stmt] = []
    rejected: list[Piece] = []
    for number, piece in enumerate(pieces):
        parsed = parse_lines(piece.lines)
        if parsed is None:
            rejected.append(piece)
            continue
        tree, repaired = parsed
        _move(tree, len(lines))
        body += tree.body
        lines += [CodeLine(line, piece.cell, number) for line in repaired]
    return Code(ast.Module(body=body, type_ignores=[]), lines), rejected


def _move(tree: ast.AST, offset: int) -> None:
    if offset:
        ast.increment_lineno(tree, offset)
