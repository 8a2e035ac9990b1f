"""Report of `oomph explain`: what happened, why, and what to do, followed by other findings."""

from __future__ import annotations

import re
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
        "resource": finding.resource.value,
        "sure": finding.is_sure,
        "speaker": finding.speaker,
        "title": finding.title,
        "details": list(finding.details),
        "why": cause.why,
        "advice": [{"text": advice.text, "command": advice.command} for advice in finding.advice],
        "fix": list(finding.fix),
        "lint_rules": list(finding.lint_rules),
        "myth": _myth_link(finding),
        "evidence": finding.evidence,
        "numbers": document.encode(finding.numbers),
        "retryable": finding.retryable,
        "survived": finding.was_survived,
        "time": finding.time,
    }


def _render(explanation: Explanation) -> Iterator[RenderableType]:
    if explanation.findings and explanation.verdict == "no error":
        yield Text("No error found: the run survived what happened on the way.", "bold green")
        yield from _render_others(list(explanation.findings), "On the way")
    elif explanation.failure is None and explanation.findings:
        yield Text(
            "The run survived what oomph recognizes, and ended with an error that it doesn't know.", "bold yellow"
        )
        yield body_line(printable(explanation.unrecognized or ""), "dim")
        yield from _render_others(list(explanation.findings), "On the way")
    elif explanation.findings:
        first, *others = explanation.findings
        yield verdict_line(explanation)
        yield from _render_finding(first)
        yield from _render_others(others)
        if explanation.unrecognized is not None:
            yield Text()
            yield Text("At the end, an error that oomph doesn't know", "bold")
            yield body_line(printable(explanation.unrecognized), "dim")
    else:
        yield from _render_nothing(explanation)
    if explanation.facts:
        yield Text()
        yield Text("In the Record" if explanation.source == "record" else "Note", "bold")
        yield from (body_line(printable(fact)) for fact in explanation.facts)


def verdict_line(explanation: Explanation, prefix: str = "") -> Text:
    """Return the first finding as a headline."""
    return Text(f"{prefix}{_title(explanation.findings[0])}.", _STYLES[explanation.verdict])


def body_evidence(evidence: str) -> RenderableType:
    """Return the text that a failure was recognized by as an indented line."""
    return body_line(printable(evidence), "dim")


def _title(finding: Finding) -> str:
    return f"{_PREFIXES.get(finding.cause.family, '')}{finding.title}"


def _myth_link(finding: Finding) -> str:
    """Return the section of a myth; the anchor is that of its heading."""
    anchor = re.sub(r"[^\w -]", "", finding.cause.myth.lower()).replace(" ", "-")
    return f"docs/myths.md#{anchor}" if anchor else ""


def _render_finding(finding: Finding) -> Iterator[RenderableType]:
    yield body_evidence(finding.evidence)
    yield Text()
    yield Text("Why", "bold")
    rank = finding.numbers.get("rank")
    if rank is not None:
        yield body_line(f"It happened on rank {rank:.0f}.")
    yield from (body_line(printable(line)) for line in (*finding.details, finding.cause.why))
    yield Text()
    yield Text("What to do", "bold")
    yield from (body_line(printable(line)) for line in finding.fix)
    # Memory that other processes use is no mistake in the code.
    if finding.lint_rules and not finding.numbers.get("others"):
        yield Text()
        yield body_line("Check the code for mistakes that cause this:")
        yield body_line(f"$ oomph lint . --select {','.join(finding.lint_rules)}")
    if finding.cause.myth:
        yield body_line(f'Often said, but false: "{finding.cause.myth}" (docs/myths.md).')


def _render_others(findings: list[Finding], heading: str = "Also found") -> Iterator[RenderableType]:
    if not findings:
        return
    yield Text()
    yield Text(heading, "bold")
    for finding in findings:
        yield body_line(f"{_title(finding)} ({finding.cause.kind.value}).")
        yield from (body_line(f"  {printable(line)}", "dim") for line in (finding.evidence, *finding.details))


def _render_nothing(explanation: Explanation) -> Iterator[RenderableType]:
    if explanation.source == "record" and explanation.has_failed:
        yield Text("The run failed with an error that oomph doesn't know.", "bold yellow")
        yield body_line(printable(explanation.unrecognized or ""), "dim")
        return
    if explanation.source == "record":
        yield Text("The Record shows no problem with this run.", "bold green")
        return
    if explanation.verdict == "no error":
        yield Text("No error found.", "bold green")
        if explanation.has_finished:
            return
    else:
        yield Text("oomph recognizes no failure in this text.", "bold yellow")
        if explanation.unrecognized is not None:
            yield body_line("Its last error is unknown to oomph; it may or may not be about memory:")
            yield body_line(printable(explanation.unrecognized), "dim")
        elif not explanation.has_text:
            yield body_line("It is empty or binary data.")
    yield body_line("Pass the whole log with standard error (2>&1), up to its last line.")
    yield body_line("If the log just stops, the kernel may have killed the run. Check its log:")
    yield body_line("$ sudo dmesg -T | oomph explain -")
