"""What a run tells while it goes, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ...planner import Plan


class Teller(Protocol):
    """Is told how a run goes; the command line draws it."""

    def said(self, words: str) -> None:
        """A sentence about what was found or decided."""
        ...

    def counted(self, what: str, done: int, total: int | None) -> None:
        """So many of something are done, and of how many, before the training begins."""
        ...

    def planned(self, made: Plan) -> None:
        """What the run will need."""
        ...

    def stepped(self, epoch: int, done: int, total: int, facts: dict[str, Any]) -> None:
        """An iteration is done."""
        ...

    def ended_epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        folder: where everything is.
        epochs: how many were trained.
        best: the best row of results.csv; None if nothing could be scored.
        plan: how it was run.
        measured: most memory that was seen: of the device, or of the process on the CPU.
        predicted: what was predicted of it.
        retries: how often a step had to be tried again.
        kept: the epoch whose weights best.pt holds; None where there is no such file.
    """

    folder: str
    epochs: int
    best: dict[str, Any] | None
    plan: Plan
    measured: int
    predicted: int
    retries: int
    kept: int | None = None
