"""The report of `oomph explain`: what happened, why, what to do; then what else was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..failures import Family, Finding
from ..monitor import Explanation
from ._text import body_line, printable

_STYLE = {"memory": "bold red", "numbers": "bold yellow", "not memory": "bold cyan"}


@dataclass(frozen=True)
class ExplainReport:
    """An explanation to be told."""

    explanation: Explanation

    def document(self) -> dict[str, Any]:
        """All of it, for a program."""
        told = self.explanation
        return {
            "oomph": "explanation",
            "version": 1,
            "verdict": told.verdict,
            "source": told.source,
            "findings": [_finding(finding) for finding in told.findings],
            "facts": list(told.facts),
            "unknown": told.unknown,
        }

    def render(self, *, plain: bool) -> RenderableType:
        """What a person reads."""
        del plain
        return Group(*_story(self.explanation))


def _finding(finding: Finding) -> dict[str, Any]:
    cause = finding.cause
    return {
        "kind": cause.kind.value,
        "family": cause.family.value,
        "title": cause.title,
        "detail": list(finding.detail),
        "why": cause.why,
        "fix": list(finding.fix),
        "evidence": finding.evidence,
        "figures": document.encode(finding.figures),
        "retryable": finding.retryable,
    }


def _story(told: Explanation) -> Iterator[RenderableType]:
    if told.findings:
        first, *others = told.findings
        yield Text(f"{_opening(first)}{first.cause.title}.", _STYLE[told.verdict])
        yield from _body(first)
        yield from _others(others)
    else:
        yield from _nothing(told)
    if told.facts:
        yield Text()
        yield Text("What is on record:" if told.source == "record" else "Note:", "bold")
        yield from (body_line(printable(fact)) for fact in told.facts)


def _opening(finding: Finding) -> str:
    return {Family.OTHER: "Not a memory problem: ", Family.NUMBERS: "Not memory, but numbers: "}.get(
        finding.cause.family, ""
    )


def _body(finding: Finding) -> Iterator[RenderableType]:
    yield body_line(printable(finding.evidence), "dim")
    yield Text()
    yield Text("Why", "bold")
    rank = finding.figures.get("rank")
    if rank is not None:
        yield body_line(f"It happened on rank {rank:.0f}.")
    yield from (body_line(printable(line)) for line in (*finding.detail, finding.cause.why))
    yield Text()
    yield Text("What to do", "bold")
    yield from (body_line(printable(line)) for line in finding.fix)


def _others(findings: list[Finding]) -> Iterator[RenderableType]:
    if not findings:
        return
    yield Text()
    yield Text("Also found", "bold")
    for finding in findings:
        yield body_line(f"{_opening(finding)}{finding.cause.title} ({finding.cause.kind.value}).")
        yield from (body_line(f"  {printable(line)}", "dim") for line in (finding.evidence, *finding.detail))


def _nothing(told: Explanation) -> Iterator[RenderableType]:
    if told.source == "record":
        yield Text("Nothing is wrong with this run, as far as its Record shows.", "bold green")
        return
    yield Text("Nothing recognised: oomph can't tell what happened from this text.", "bold yellow")
    if told.unknown is not None:
        yield body_line("The last error in it, which oomph doesn't know and can't call memory or not:")
        yield body_line(printable(told.unknown), "dim")
    yield body_line("Give it the whole log, with standard error (2>&1), down to its last line.")
    yield body_line("If the log simply stops, the kernel may have killed the run; see what it says:")
    yield body_line("$ sudo dmesg -T | oomph explain -")
