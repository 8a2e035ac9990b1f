"""Pieces of code in a document, with the place of every line in its file."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Language(enum.Enum):
    """The language of a piece of code."""

    PYTHON = "python"
    SHELL = "shell"


@dataclass(frozen=True)
class PieceLine:
    """One line of a piece.

    Attributes:
        text: The text without its line end.
        line: Its line in the file or cell, from 1.
        column: Characters in front of it that don't belong to it, such as the indentation of a Markdown fence.
    """

    text: str
    line: int
    column: int = 0


@dataclass(frozen=True)
class Piece:
    """Code in one language: a whole file, a notebook's cell or a Markdown fence."""

    language: Language
    lines: tuple[PieceLine, ...]
    cell: int | None = None
