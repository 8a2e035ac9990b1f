"""Mixed precision: bfloat16 where the GPU has it, else float16."""

from __future__ import annotations

from dataclasses import replace

from ...machine import Target
from ...settings import Settings
from ._change import Change, Context

_BF16_CAPABILITY = (8, 0)  # before Ampere, torch emulates bf16
_TENSOR_CORES = (7, 0)
_MIXED = ("amp-bf16", "amp-fp16", "bf16")


def fast_precision(target: Target) -> str | None:
    """Return the mixed precision that a device computes fast in; None if it has none."""
    if target.is_cpu or target.capability < _TENSOR_CORES:
        return None
    return "amp-bf16" if target.capability >= _BF16_CAPABILITY else "amp-fp16"


def slow_precision(settings: Settings, target: Target) -> tuple[Settings, ...]:
    """Return settings in mixed precision on the CPU, where it saves memory and costs time."""
    if not target.is_cpu or settings.precision in _MIXED:
        return ()
    return (replace(settings, precision="amp-bf16"),)


def _improved(settings: Settings, context: Context) -> tuple[Settings, ...]:
    precision = fast_precision(context.target)
    if precision is None or settings.precision in _MIXED:
        return ()
    return (replace(settings, precision=precision),)


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    return f"the precision is {after.precision} instead of {before.precision}", "Numbers are rounded, as you allowed"


PRECISION = Change("precision", _describe, _improved, permission="precision")
