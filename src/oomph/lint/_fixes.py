"""Application of the edits that fix problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ._problem import Edit, Problem, Span
from .sources import Document, DocumentKind, replace_cells, split_lines, which_parse


def choose_fixes(problems: Iterable[Problem]) -> list[Problem]:
    """Return the fixable problems whose edits don't overlap those of an earlier one."""
    chosen: list[Problem] = []
    taken: dict[tuple[int | None, int], list[Span]] = {}
    for problem in sorted(problems, key=lambda problem: (problem.span.line, problem.span.column)):
        spans = [edit.span for edit in problem.edits]
        others = (other for span in spans for key in _rows(span) for other in taken.get(key, ()))
        if spans and not any(_overlap(span, other) for other in others for span in spans):
            chosen.append(problem)
            for span in spans:
                for key in _rows(span):
                    taken.setdefault(key, []).append(span)
    return chosen


def _rows(span: Span) -> Iterator[tuple[int | None, int]]:
    """Yield the lines of a span."""
    for line in range(span.line, span.end_line + 1):
        yield span.cell, line


def apply_fixes(document: Document, text: str, problems: Sequence[Problem]) -> tuple[str, list[Problem]]:
    """Return the text of a document with the fixes of problems, and the problems that are left.

    A fix after which Python code no longer parses is left out.
    """
    intact = which_parse(text, document.kind)

    def choose(chosen: list[Problem], candidates: Sequence[Problem]) -> list[Problem]:
        """Return the chosen problems with as many of the candidates as keep the code intact."""
        if not candidates or _is_intact(_apply(document, text, [*chosen, *candidates]), document.kind, intact):
            return [*chosen, *candidates]
        if len(candidates) == 1:
            return chosen
        half = len(candidates) // 2
        return choose(choose(chosen, candidates[:half]), candidates[half:])

    chosen = choose([], problems)
    applied = set(chosen)
    return _apply(document, text, chosen), [problem for problem in problems if problem not in applied]


def _is_intact(text: str, kind: DocumentKind, intact: Sequence[bool]) -> bool:
    """Return True if every piece of Python still parses that did before."""
    now = which_parse(text, kind)
    return len(now) == len(intact) and all(is_now or not was for is_now, was in zip(now, intact, strict=True))


def _apply(document: Document, text: str, problems: Iterable[Problem]) -> str:
    edits = [edit for problem in problems for edit in problem.edits]
    changed: Mapping[int | None, str] = {
        cell: apply_edits(document.sources[cell], [edit for edit in edits if edit.span.cell == cell])
        for cell in {edit.span.cell for edit in edits}
    }
    if document.kind is DocumentKind.NOTEBOOK:
        return replace_cells(text, {cell: source for cell, source in changed.items() if cell is not None})
    return changed.get(None, text)


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """Return the text with its edits applied; they must not overlap."""
    lines = split_lines(text)
    for edit in sorted(edits, key=lambda edit: (edit.span.line, edit.span.column), reverse=True):
        span = edit.span
        head = lines[span.line - 1][: span.column]
        tail = lines[span.end_line - 1][span.end_column :]
        lines[span.line - 1 : span.end_line] = _without_blank(head, edit.text, tail)
    return "".join(lines)


def _without_blank(head: str, text: str, tail: str) -> list[str]:
    """Return the edited lines; a line from which everything was removed disappears."""
    joined = head + text + tail
    is_removal = not text and not joined.strip()
    return [] if is_removal else split_lines(joined)


def _overlap(first: Span, second: Span) -> bool:
    if first.cell != second.cell:
        return False
    starts_before = (first.line, first.column) < (second.end_line, second.end_column)
    ends_after = (second.line, second.column) < (first.end_line, first.end_column)
    same = first == second
    return (starts_before and ends_after) or same
