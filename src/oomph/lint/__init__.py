"""Rules over training code: mistakes in accumulation, mixed precision, data loading and memory. Imports no torch."""

from ._lint import LintOptions, fix_text, lint_paths, lint_text
from ._problem import Diagnostic, Edit, LintResult, Problem, Span
from ._rule import Rule, RuleFamily
from .rules import RULES
from .sources import read_pipe

__all__ = [
    "RULES",
    "Diagnostic",
    "Edit",
    "LintOptions",
    "LintResult",
    "Problem",
    "Rule",
    "RuleFamily",
    "Span",
    "fix_text",
    "lint_paths",
    "lint_text",
    "read_pipe",
]
