"""Smaller images or shorter sequences."""

from __future__ import annotations

from dataclasses import replace

from ...settings import Settings
from ._change import Change

_STEP = 32  # the strides of most detectors and the patches of most transformers divide it


def smaller_sizes(settings: Settings) -> tuple[Settings, ...]:
    """Return settings with smaller and smaller sides, down to half of the requested one; none if there is no side."""
    if not isinstance(settings.size, int) or settings.size <= _STEP:
        return ()
    largest = (settings.size - 1) // _STEP * _STEP
    smallest = max(settings.size // 2 // _STEP * _STEP, _STEP)
    return tuple(replace(settings, size=size) for size in range(largest, smallest - 1, -_STEP))


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    return f"the size is {after.size} instead of {before.size}", "Detail is lost, as you allowed"


SIZE = Change("size", _describe, permission="size")
