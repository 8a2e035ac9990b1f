"""Diagnosis of training steps: NaN and infinity, skipped steps, waiting for data."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...failures import FailureKind, Finding, measured_finding
from .._record import Fields, Record

_WARMUP_STEPS = 5  # workers start and kernels load
_MIN_STEPS = 10  # for a fraction of waiting time
_MIN_WAITING_FRACTION = 0.25  # of the time
_MIN_CONSECUTIVE_SKIPS = 10  # a scaler halves its scale at each skip; 65536 to 64 is its normal search
_MIN_SKIPPED_FRACTION, _MIN_SKIPPED_STEPS = 0.2, 50


def non_finite_loss(record: Record) -> Iterator[Finding]:
    """Report a loss that is NaN or infinite."""
    yield from _non_finite(record, "loss", FailureKind.NON_FINITE_LOSS, "The loss")


def non_finite_gradients(record: Record) -> Iterator[Finding]:
    """Report a gradient norm that is NaN or infinite, except in steps that the scaler skipped."""
    yield from _non_finite(record, "grad_norm", FailureKind.NON_FINITE_GRADIENTS, "The norm of the gradients")


def _non_finite(record: Record, field: str, kind: FailureKind, name: str) -> Iterator[Finding]:
    steps = [
        step
        for step in record.steps
        if isinstance(step.get(field), float) and not math.isfinite(step[field]) and not step.get("skipped")
    ]
    if steps:
        first = steps[0]
        evidence = (
            f"{name} was {first[field]} at step {_step_number(first)}, and in {len(steps)} of {len(record.steps)} "
            "steps."
        )
        yield measured_finding(kind, evidence, {"steps": len(steps)}, time=first["t"])


def _step_number(step: Fields) -> object:
    """Return the step that the values on a line belong to: on a GPU they are written some steps late."""
    number, late = step.get("step", "?"), step.get("late", 0)
    return number - late if isinstance(number, int) and isinstance(late, int) else number


def skipped_steps(record: Record) -> Iterator[Finding]:
    """Report many skipped steps, in a row or in all."""
    skipped = [bool(step.get("skipped")) for step in record.steps]
    longest = current = 0
    for is_skipped in skipped:
        current = current + 1 if is_skipped else 0
        longest = max(longest, current)
    is_frequent = len(skipped) >= _MIN_SKIPPED_STEPS and sum(skipped) >= _MIN_SKIPPED_FRACTION * len(skipped)
    if longest >= _MIN_CONSECUTIVE_SKIPS or is_frequent:
        evidence = f"{sum(skipped)} of {len(skipped)} steps were skipped, up to {longest} in a row."
        numbers = {"skipped": sum(skipped), "in_a_row": longest}
        first = record.steps[skipped.index(True)]
        yield measured_finding(FailureKind.SKIPPED_STEPS, evidence, numbers, time=first["t"])


def starved(record: Record) -> Iterator[Finding]:
    """Report steps that wait for data for a large fraction of the time."""
    times = [
        (step["wait"], seconds, step["t"])
        for step in record.steps[_WARMUP_STEPS:]
        if isinstance(step.get("wait"), (int, float))
        and isinstance(seconds := step.get("device_seconds", step.get("seconds")), (int, float))
    ]
    waited, worked = sum(wait for wait, *_ in times), sum(seconds for _, seconds, _ in times)
    if len(times) >= _MIN_STEPS and waited > _MIN_WAITING_FRACTION * (waited + worked):
        fraction = waited / (waited + worked)
        evidence = (
            f"Steps waited for the loader in {fraction:.0%} of the time, {waited / len(times):.2f} s before each step."
        )
        numbers = {"fraction": fraction, "seconds_lost": waited}
        yield measured_finding(FailureKind.STARVED, evidence, numbers, time=max(times)[2])
