"""SARIF 2.1.0: the format in which linters give their results to code hosts and editors."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from ... import __version__
from ...lint import RULES, Diagnostic, LintResult, Span

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_document(result: LintResult) -> dict[str, Any]:
    """Return the diagnostics as a SARIF log with one run."""
    numbers = {rule.name: number for number, rule in enumerate(RULES)}
    rules = [
        {"id": rule.name, "shortDescription": {"text": rule.title}, "properties": {"tags": [rule.family.value]}}
        for rule in RULES
    ]
    run = {
        "tool": {"driver": {"name": "oomph lint", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(diagnostic, numbers[diagnostic.rule]) for diagnostic in result.diagnostics],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(diagnostic: Diagnostic, rule_number: int) -> dict[str, Any]:
    span = diagnostic.problem.span
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(diagnostic.path)}, "region": _region(span)}
    }
    if span.cell is not None:
        # SARIF has no cells: lines count from the cell's first one.
        location["message"] = {"text": f"cell {span.cell}"}
    return {
        "ruleId": diagnostic.rule,
        "ruleIndex": rule_number,
        "level": "warning",
        "message": {"text": diagnostic.problem.message},
        "locations": [location],
    }


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column + 1,
        "endLine": span.end_line,
        "endColumn": span.end_column + 1,
    }


def _uri(path: str) -> str:
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())
