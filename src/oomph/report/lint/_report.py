"""Report of `oomph lint`: one line per mistake, and a list of the rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...display import HtmlRepr
from ...lint import RULES, Diagnostic, LintResult, RuleFamily
from .._table import FullWidth, table
from .._text import printable
from ._sarif import sarif_document


@dataclass(frozen=True)
class LintReport(HtmlRepr):
    """The mistakes in files of training code."""

    result: LintResult

    def document(self) -> dict[str, Any]:
        """Return the result as a JSON document."""
        result = self.result
        return {
            "oomph": "lint",
            "version": 1,
            "files": result.files,
            "lines": result.lines,
            "diagnostics": [_diagnostic_document(diagnostic) for diagnostic in result.diagnostics],
            "fixed": dict(result.fixed),
            "not_fixed": dict(result.unfixed),
            "skipped": dict(result.skipped),
            "partly_checked": dict(result.partly),
        }

    def sarif(self) -> dict[str, Any]:
        """Return the result in SARIF 2.1.0, which code hosts and editors show."""
        return sarif_document(self.result)

    def render(self, *, plain: bool) -> RenderableType:
        """Render the mistakes as text."""
        del plain
        return Group(*self._lines())

    def _lines(self) -> Iterator[RenderableType]:
        yield from map(_diagnostic_line, self.result.diagnostics)
        for path, reason in self.result.skipped.items():
            yield Text(printable(f"{path}: not checked: {reason}"), "yellow")
        for path, reason in self.result.partly.items():
            yield Text(printable(f"{path}: checked in part: {reason}"), "yellow")
        for path, reason in self.result.unfixed.items():
            yield Text(printable(f"{path}: not fixed: {reason}"), "yellow")
        yield Text(self._summary(), "bold" if self.result.diagnostics else "bold green")

    def _summary(self) -> str:
        result = self.result
        checked = f"{_count(result.files, 'file')}, {_count(result.lines, 'line')}"
        fixed = f"Fixed {_count(sum(result.fixed.values()), 'mistake')}. " if result.fixed else ""
        if not result.diagnostics:
            return f"{fixed}No mistakes found in {checked}."
        left = f"{len(result.diagnostics)} left" if fixed else _count(len(result.diagnostics), "mistake")
        total = f"{fixed}{left} in {checked}."
        fixable = sum(diagnostic.is_fixable for diagnostic in result.diagnostics)
        return f"{total} --fix corrects {fixable}." if fixable else total


@dataclass(frozen=True)
class LintRuleList(HtmlRepr):
    """The rules of the linter."""

    def document(self) -> dict[str, Any]:
        """Return the rules as a JSON document."""
        rules = [
            {"name": rule.name, "family": rule.family.value, "title": rule.title, "fixable": rule.is_fixable}
            for rule in RULES
        ]
        return {"oomph": "lint-rules", "version": 1, "rules": rules}

    def render(self, *, plain: bool) -> RenderableType:
        """Render the rules as tables, one per family."""
        del plain
        return Group(*self._tables())

    def _tables(self) -> Iterator[RenderableType]:
        counts = Counter(rule.family for rule in RULES)
        for family in (family for family in RuleFamily if counts[family]):
            yield Text(family.value, "bold")
            rows = table("", "", "", plain=True)
            for rule in (rule for rule in RULES if rule.family is family):
                rows.add_row(f"    {rule.name}", rule.title, "--fix" if rule.is_fixable else "")
            yield FullWidth(rows)


def _diagnostic_line(diagnostic: Diagnostic) -> Text:
    problem = diagnostic.problem
    line = Text(printable(f"{diagnostic.path}:{problem.span.place}: "))
    line.append(diagnostic.rule, "bold red")
    line.append(f" {printable(problem.message)}")
    return line


def _diagnostic_document(diagnostic: Diagnostic) -> dict[str, Any]:
    span = diagnostic.problem.span
    return {
        "path": diagnostic.path,
        "rule": diagnostic.rule,
        "message": diagnostic.problem.message,
        "cell": span.cell,
        "line": span.line,
        "column": span.column + 1,
        "end_line": span.end_line,
        "end_column": span.end_column + 1,
        "fixable": diagnostic.is_fixable,
    }


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
