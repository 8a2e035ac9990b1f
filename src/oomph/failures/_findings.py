"""Construction of findings from a text or from measurements."""

from __future__ import annotations

from collections.abc import Mapping

from ._choice import MAX_ADVICE, choose_advice
from ._details import derive_details, growth_details
from ._evidence import find_evidence
from ._growth import largest_host_memory
from ._kinds import FailureKind, Finding
from ._message_numbers import read_numbers
from ._refinement import refine_kind, resource_of, says_for_sure
from ._situation import read_situation
from .causes import CAUSES

_MAX_EVIDENCE = 400  # characters


def finding_in_text(
    kind: FailureKind,
    evidence: str,
    context: str = "",
    numbers: Mapping[str, float] | None = None,
    surroundings: str = "",
) -> Finding:
    """Return the finding of a kind in a text.

    Args:
        kind: The kind.
        evidence: The line that it was recognized by.
        context: The line and what follows it, with the numbers of the message; the line by default.
        numbers: Further numbers, such as the rank.
        surroundings: The head of the text and what comes before the line. It tells who speaks, on which system, and
            may refine the kind; without it, the kind is kept.
    """
    message = context or evidence
    situation = read_situation(message, surroundings)
    values = read_numbers(message, surroundings)
    if surroundings:
        kind = refine_kind(kind, values, message, surroundings, situation.speaker)
    cause, resource = CAUSES[kind], resource_of(kind, evidence, message, situation)
    evidence_beside = find_evidence(kind, f"{surroundings}\n{message}", situation) if surroundings else ()
    details = (
        *growth_details(kind, surroundings),
        *(item.detail for item in evidence_beside),
        *derive_details(kind, values, situation),
    )
    resource = next((item.resource for item in evidence_beside if item.resource is not None), resource)
    return Finding(
        cause,
        _shorten(evidence),
        {**values.as_dict(), **(numbers or {})},
        tuple(detail.sentence for detail in details),
        choose_advice(cause, details, situation, resource, message, values.limit or largest_host_memory(surroundings)),
        resource,
        says_for_sure(kind, evidence, message, surroundings),
        situation.speaker.value,
    )


def measured_finding(
    kind: FailureKind, evidence: str, numbers: Mapping[str, float], *details: str, time: float | None = None
) -> Finding:
    """Return the finding of a kind that was measured, and when."""
    cause = CAUSES[kind]
    return Finding(
        cause, evidence, dict(numbers), details, cause.advice[:MAX_ADVICE], cause.resource, cause.is_sure, time=time
    )


def _shorten(evidence: str) -> str:
    line = " ".join(evidence.split())
    return line if len(line) <= _MAX_EVIDENCE else line[: _MAX_EVIDENCE - 1] + "…"
