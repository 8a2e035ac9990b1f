"""Problems that rules report, and the edits that fix them, in positions of the file that was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Span:
    """A range of characters in a file, or in a cell of a notebook.

    Attributes:
        cell: The index of the notebook's cell; None in other files.
        line: The first line, from 1.
        column: The first character in that line, from 0.
        end_line: The last line.
        end_column: The character after the last one.
    """

    cell: int | None
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def place(self) -> str:
        """Line and column from 1, as editors count: `"12:5"`, in a notebook `"cell 3:12:5"`."""
        position = f"{self.line}:{self.column + 1}"
        return position if self.cell is None else f"cell {self.cell}:{position}"


@dataclass(frozen=True)
class Edit:
    """A replacement of the characters in a span; an empty span inserts."""

    span: Span
    text: str


@dataclass(frozen=True)
class Problem:
    """A mistake at one place, as a rule reports it.

    Attributes:
        span: The place.
        message: The mistake and what to write instead, in one sentence.
        edits: A safe fix: all of these edits, or none if the mistake must be fixed by hand.
    """

    span: Span
    message: str
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Diagnostic:
    """A problem in a file, with the rule that found it."""

    path: str
    rule: str
    problem: Problem

    @property
    def is_fixable(self) -> bool:
        """True if `--fix` can correct it."""
        return bool(self.problem.edits)

    @property
    def sort_key(self) -> tuple[str, int, int, int, str]:
        """Order of diagnostics: by file, then by position."""
        span = self.problem.span
        return self.path, -1 if span.cell is None else span.cell, span.line, span.column, self.rule


@dataclass(frozen=True)
class LintResult:
    """All diagnostics of a call of `lint_paths`.

    Attributes:
        diagnostics: The mistakes, by file and line.
        files: How many files were checked.
        lines: How many lines they have.
        skipped: Files that could not be checked, with the reason.
        partly: Files that contain something else than code, with the reason.
        fixed: How many mistakes were fixed, by file.
        unfixed: Files that could not be corrected, with the reason.
    """

    diagnostics: tuple[Diagnostic, ...]
    files: int
    lines: int
    skipped: Mapping[str, str] = field(default_factory=dict)
    partly: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)
    unfixed: Mapping[str, str] = field(default_factory=dict)
