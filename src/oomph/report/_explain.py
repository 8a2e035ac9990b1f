"""Report of `oomph explain`: what happened, why, and what to do, followed by other findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..display import HtmlRepr
from ..failures import Family, Finding
from ..monitor import Explanation
from ._text import body_line, printable

_STYLES = {"memory": "bold red", "numerics": "bold yellow", "not memory": "bold cyan"}
_PREFIXES = {Family.OTHER: "Not a memory problem: ", Family.NUMERICS: "Not memory, but a numerical error: "}


@dataclass(frozen=True)
class ExplainReport(HtmlRepr):
    """An explanation of a log or Record."""

    explanation: Explanation

    def document(self) -> dict[str, Any]:
        """Return the explanation as a JSON document."""
        explanation = self.explanation
        return {
            "oomph": "explanation",
            "version": 1,
            "verdict": explanation.verdict,
            "source": explanation.source,
            "findings": [finding_document(finding) for finding in explanation.findings],
            "facts": list(explanation.facts),
            "unrecognized": explanation.unrecognized,
        }

    def render(self, *, plain: bool) -> RenderableType:
        """Render the explanation as text."""
        del plain
        return Group(*_render(self.explanation))


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON values."""
    cause = finding.cause
    return {
        "kind": cause.kind.value,
        "family": cause.family.value,
        "title": cause.title,
        "details": list(finding.details),
        "why": cause.why,
        "fix": list(finding.fix),
        "evidence": finding.evidence,
        "numbers": document.encode(finding.numbers),
        "retryable": finding.retryable,
        "time": finding.time,
    }


def _render(explanation: Explanation) -> Iterator[RenderableType]:
    if explanation.findings:
        first, *others = explanation.findings
        yield Text(f"{_title(first)}.", _STYLES[explanation.verdict])
        yield from _render_finding(first)
        yield from _render_others(others)
    else:
        yield from _render_nothing(explanation)
    if explanation.facts:
        yield Text()
        yield Text("In the Record" if explanation.source == "record" else "Note", "bold")
        yield from (body_line(printable(fact)) for fact in explanation.facts)


def _title(finding: Finding) -> str:
    return f"{_PREFIXES.get(finding.cause.family, '')}{finding.cause.title}"


def _render_finding(finding: Finding) -> Iterator[RenderableType]:
    yield body_line(printable(finding.evidence), "dim")
    yield Text()
    yield Text("Why", "bold")
    rank = finding.numbers.get("rank")
    if rank is not None:
        yield body_line(f"It happened on rank {rank:.0f}.")
    yield from (body_line(printable(line)) for line in (*finding.details, finding.cause.why))
    yield Text()
    yield Text("What to do", "bold")
    yield from (body_line(printable(line)) for line in finding.fix)


def _render_others(findings: list[Finding]) -> Iterator[RenderableType]:
    if not findings:
        return
    yield Text()
    yield Text("Also found", "bold")
    for finding in findings:
        yield body_line(f"{_title(finding)} ({finding.cause.kind.value}).")
        yield from (body_line(f"  {printable(line)}", "dim") for line in (finding.evidence, *finding.details))


def _render_nothing(explanation: Explanation) -> Iterator[RenderableType]:
    if explanation.source == "record":
        yield Text("The Record shows no problem with this run.", "bold green")
        return
    yield Text("oomph recognizes no failure in this text.", "bold yellow")
    if explanation.unrecognized is not None:
        yield body_line("Its last error is unknown to oomph; it may or may not be about memory:")
        yield body_line(printable(explanation.unrecognized), "dim")
    yield body_line("Pass the whole log with standard error (2>&1), up to its last line.")
    yield body_line("If the log just stops, the kernel may have killed the run. Check its log:")
    yield body_line("$ sudo dmesg -T | oomph explain -")
