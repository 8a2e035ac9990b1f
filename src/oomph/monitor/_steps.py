"""Verdicts on steps: numbers that are none, skipped steps, waiting for data."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..failures import FailureKind, Finding, find_measured
from ._record import Fields, Record

_SETTLED = 5  # steps in which workers start and kernels load
_FEWEST = 10  # steps that a share is taken of
_WAITING = 0.25  # share of the time that steps may wait for data
_SKIPPED_IN_A_ROW = 10  # a scaler halves its scale at each; from 65536 down to 64 is its search for a scale
_SKIPPED_SHARE, _SKIPPED_OF = 0.2, 50


def bad_loss(record: Record) -> Iterator[Finding]:
    """A loss that is NaN or infinite."""
    yield from _not_finite(record, "loss", FailureKind.BAD_LOSS, "The loss")


def bad_gradients(record: Record) -> Iterator[Finding]:
    """Gradients that are, where no scaler has thrown them away."""
    yield from _not_finite(record, "grad_norm", FailureKind.BAD_GRADIENTS, "The norm of the gradients")


def _not_finite(record: Record, field: str, kind: FailureKind, name: str) -> Iterator[Finding]:
    bad = [
        step
        for step in record.steps
        if isinstance(step.get(field), float) and not math.isfinite(step[field]) and not step.get("skipped")
    ]
    if bad:
        first = _number(bad[0])
        evidence = f"{name} was {bad[0][field]} at step {first}, and in {len(bad)} of {len(record.steps)} steps."
        yield find_measured(kind, evidence, {"steps": len(bad)})


def _number(step: Fields) -> object:
    """Which step a number on a line belongs to: on a GPU it is told late."""
    number, late = step.get("step", "?"), step.get("late", 0)
    return number - late if isinstance(number, int) and isinstance(late, int) else number


def skipped_steps(record: Record) -> Iterator[Finding]:
    """Steps that the scaler skipped, in a row or again and again."""
    skipped = [bool(step.get("skipped")) for step in record.steps]
    longest = run = 0
    for one in skipped:
        run = run + 1 if one else 0
        longest = max(longest, run)
    often = len(skipped) >= _SKIPPED_OF and sum(skipped) >= _SKIPPED_SHARE * len(skipped)
    if longest >= _SKIPPED_IN_A_ROW or often:
        evidence = f"{sum(skipped)} of {len(skipped)} steps were skipped, up to {longest} in a row."
        yield find_measured(FailureKind.SKIPPED_STEPS, evidence, {"skipped": sum(skipped), "in_a_row": longest})


def starved(record: Record) -> Iterator[Finding]:
    """Steps that wait for data for much of the time."""
    timed = [
        (step["wait"], worked)
        for step in record.steps[_SETTLED:]
        if isinstance(step.get("wait"), (int, float))
        and isinstance(worked := step.get("device_seconds", step.get("seconds")), (int, float))
    ]
    waited, worked = sum(wait for wait, _ in timed), sum(seconds for _, seconds in timed)
    if len(timed) >= _FEWEST and waited > _WAITING * (waited + worked):
        share = waited / (waited + worked)
        evidence = (
            f"{share:.0%} of the time went into waiting for the loader, {waited / len(timed):.2f} s before each step."
        )
        yield find_measured(FailureKind.STARVED, evidence, {"share": share, "seconds_lost": waited})
