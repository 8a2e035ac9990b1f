"""A finding made of a text or of numbers."""

from __future__ import annotations

from collections.abc import Mapping

from ._figures import read_figures
from ._kind import FailureKind, Finding
from ._specifics import specifics
from ._table import CAUSES

_SHOWN = 400  # characters of evidence that are kept


def find_in(kind: FailureKind, evidence: str, around: str = "", more: Mapping[str, float] | None = None) -> Finding:
    """The finding of a kind in a text, with the numbers that stand around it."""
    figures = {**read_figures(around or evidence), **(more or {})}
    detail, advice = specifics(kind, figures)
    line = " ".join(evidence.split())
    return Finding(CAUSES[kind], line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…", figures, detail, advice)


def find_measured(kind: FailureKind, evidence: str, figures: Mapping[str, float], *detail: str) -> Finding:
    """The finding of a symptom that was measured."""
    return Finding(CAUSES[kind], evidence, dict(figures), detail)
