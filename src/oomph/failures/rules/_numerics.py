"""Rules for numerical errors."""

from __future__ import annotations

from .._kinds import FailureKind
from ._rule import rule

NUMERICS_RULES = (
    rule(FailureKind.NON_FINITE_LOSS, "nan", r"[Ll]oss\w*['\"]?\s*(?:is|=|:|\s)\s*(?:tensor\()?nan\b"),
    rule(
        FailureKind.NON_FINITE_LOSS,
        "NaN",
        r"(?:[Ll]oss\w*['\"]?\s*(?:is|became|=|:)\s*NaN|NaN (?:loss|or Inf found in))",
    ),
    rule(FailureKind.NON_FINITE_LOSS, "inf", r"[Ll]oss['\"]?\s*(?:is|=|:)\s*-?inf\b"),
    rule(FailureKind.NON_FINITE_LOSS, "Training has diverged"),
    rule(
        FailureKind.NON_FINITE_GRADIENTS, "grad_norm", r"grad_norm['\"]?\s*[:=]\s*(?:tensor\()?['\"]?-?(?:nan|inf|NaN)"
    ),
    rule(FailureKind.NON_FINITE_GRADIENTS, "returned nan values in its", r"Function '\w+' returned nan values"),
    rule(FailureKind.NON_FINITE_GRADIENTS, "is non-finite, so it cannot be clipped"),
    rule(FailureKind.NON_FINITE_GRADIENTS, "Minimum loss scale reached"),
    # The first steps always reduce the scale; only a small one is a sign of trouble.
    rule(
        FailureKind.SKIPPED_STEPS,
        "Gradient overflow.",
        r"Gradient overflow\.\s+Skipping step(?!.*reducing loss scale to [1-9]\d\d)",
    ),
    rule(FailureKind.SKIPPED_STEPS, "OVERFLOW!", r"OVERFLOW! .*[Ss]kipping step"),
)
