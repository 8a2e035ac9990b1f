"""Expandable segments: torch's allocator wastes less memory between blocks."""

from __future__ import annotations

from dataclasses import replace

from ...settings import Settings
from ._change import Change, Context


def _improved(settings: Settings, context: Context) -> tuple[Settings, ...]:
    if context.target.is_cpu or settings.allocator != "default":
        return ()
    return (replace(settings, allocator="expandable"),)


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    del before, after
    return "torch's allocator uses expandable segments", "None"


ALLOCATOR = Change("allocator", _describe, _improved)
