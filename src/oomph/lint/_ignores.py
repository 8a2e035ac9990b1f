"""Comments that switch rules off: `# oomph: ignore[rule]` on a line, `# oomph: ignore-file[rule]` for a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ._problem import Problem

_MARK = "oomph: ignore"
_LINE = re.compile(r"oomph: ignore(?!-file)(?:\[([\w\s,-]*)\])?")
_FILE = re.compile(r"oomph: ignore-file(?:\[([\w\s,-]*)\])?")
_ALL = "*"

Lines = Mapping[int | None, Sequence[str]]  # the lines of each cell; of the whole file under None


class Ignores:
    """The comments of one document that switch rules off."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._file_rules = frozenset(self._find_file_rules())

    def hides(self, rule: str, problem: Problem) -> bool:
        """Return True if a comment on the problem's first or last line, or for the file, names the rule."""
        if self._file_rules & {rule, _ALL}:
            return True
        span = problem.span
        lines = self._lines.get(span.cell, ())
        texts = (lines[number - 1] for number in {span.line, span.end_line} if 0 < number <= len(lines))
        return any(_names(match[1]) & {rule, _ALL} for text in texts for match in _LINE.finditer(text))

    def _find_file_rules(self) -> Iterable[str]:
        for lines in self._lines.values():
            for line in lines:
                if _MARK in line and (match := _FILE.search(line)):
                    yield from _names(match[1])


def _names(listed: str | None) -> set[str]:
    """Return the rules in the brackets; without brackets all rules."""
    return {_ALL} if listed is None else {name.strip() for name in listed.split(",") if name.strip()}
