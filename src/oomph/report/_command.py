"""Report of `oomph run`: why the command died, and at most three steps to take."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..failures import Advice, FailureKind, Finding
from ..supervisor import Attempt, RunResult
from ..units import count_of, format_time
from ._explain import ExplainReport, body_evidence, verdict_line
from ._text import body_line, cut_middle, printable

_MAX_PATH = 200  # characters


@dataclass(frozen=True)
class CommandReport:
    """The end of a foreign command."""

    result: RunResult

    def document(self) -> dict[str, Any]:
        """Return the result as a JSON document."""
        result = self.result
        explanation = result.last.explanation
        return {
            "oomph": "run",
            "version": 1,
            "exit_code": result.exit_code,
            "attempts": [_attempt_document(attempt) for attempt in result.attempts],
            "explanation": None if explanation is None else ExplainReport(explanation).document(),
            "why_not_retried": result.why_not_retried,
            "notes": list(result.notes),
            "record": str(result.files.record),
            "output": str(result.files.log) if result.files.log.exists() else None,
        }

    def render(self, *, plain: bool) -> RenderableType:
        """Render the explanation; nothing for a command that ended well."""
        del plain
        return Group(*self._render())

    def _render(self) -> Iterator[RenderableType]:
        last = self.result.last
        if last.start_error:
            yield Text(f"oomph: {printable(last.argv[0])} can't be started: {last.start_error}", "bold red")
            return
        if last.explanation is not None:
            yield from self._render_death(last)
        if last.survivors:
            pids = ", ".join(map(str, last.survivors[:8]))
            count = count_of(len(last.survivors), "process", "processes")
            yield Text(f"oomph: the command left {count} running: {pids}.")

    def _render_death(self, last: Attempt) -> Iterator[RenderableType]:
        explanation = last.explanation
        assert explanation is not None  # noqa: S101  the caller has checked it
        first = explanation.failure
        ending = f"The command ended with {last.ending} after {format_time(last.seconds)}."
        if first is not None and first.kind is FailureKind.STOPPED:
            yield Text(f"oomph: {ending}")
        elif first is None:
            yield Text(f"oomph: {ending} oomph doesn't know its last error.", "bold yellow")
            if explanation.unrecognized is not None:
                yield body_evidence(explanation.unrecognized)
            for finding in explanation.findings:
                yield body_line(f"Earlier it survived this: {finding.title}.")
        else:
            yield verdict_line(explanation, "oomph: ")
            yield body_evidence(first.evidence)
            yield body_line(ending)
            yield Text("Why", "bold")
            yield from (body_line(printable(line)) for line in (*first.details, first.cause.why))
            yield Text("What to do", "bold")
            yield from (body_line(printable(line)) for advice in self._advice(first) for line in advice.lines)
        if self.result.why_not_retried:
            yield Text(self.result.why_not_retried)
        yield Text(f"Record: {cut_middle(str(self.result.files.record), _MAX_PATH)}", "dim")

    def _advice(self, finding: Finding) -> tuple[Advice, ...]:
        """Return the advice of a failure; that about the batch is in terms of this command."""
        smaller = self.result.smaller
        if smaller is None or not finding.cause.is_memory:
            return finding.advice
        others = tuple(advice for advice in finding.advice if "batch" not in " ".join(advice.lines))
        if not smaller.words or len(others) == len(finding.advice):
            return others
        position = next(number for number, advice in enumerate(finding.advice) if advice not in others)
        own = Advice("Use a smaller batch and accumulate its gradients:", f"$ {shlex.join(smaller.words)}")
        return (*others[:position], own, *others[position:])


def _attempt_document(attempt: Attempt) -> dict[str, Any]:
    finding = None if attempt.explanation is None else attempt.explanation.failure
    return {
        "argv": list(attempt.argv),
        "exit_code": attempt.exit_code,
        "ending": attempt.ending,
        "seconds": attempt.seconds,
        "failure": None if finding is None else finding.kind.value,
        "stopped_by_oomph": attempt.stop is not None,
        "start_error": attempt.start_error,
        "survivors": list(attempt.survivors),
    }
