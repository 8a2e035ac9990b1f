"""Report of `oomph lint`, as text, JSON and SARIF."""

from ._report import LintReport, LintRuleList

__all__ = ["LintReport", "LintRuleList"]
