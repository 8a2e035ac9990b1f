"""Construction of findings from a text or from measurements."""

from __future__ import annotations

from collections.abc import Mapping

from ._causes import CAUSES
from ._details import details_and_advice
from ._kinds import FailureKind, Finding
from ._message_numbers import read_numbers

_MAX_EVIDENCE = 400  # characters


def finding_in_text(
    kind: FailureKind, evidence: str, context: str = "", numbers: Mapping[str, float] | None = None
) -> Finding:
    """Return the finding of a kind, with the numbers in its context and those given."""
    all_numbers = {**read_numbers(context or evidence), **(numbers or {})}
    details, advice = details_and_advice(kind, all_numbers)
    line = " ".join(evidence.split())
    shown = line if len(line) <= _MAX_EVIDENCE else line[: _MAX_EVIDENCE - 1] + "…"
    return Finding(CAUSES[kind], shown, all_numbers, details, advice)


def measured_finding(
    kind: FailureKind, evidence: str, numbers: Mapping[str, float], *details: str, time: float | None = None
) -> Finding:
    """Return the finding of a kind that was measured, and when."""
    return Finding(CAUSES[kind], evidence, dict(numbers), details, time=time)
