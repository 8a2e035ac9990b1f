"""Optimizer states in 8 bits: two bytes for each weight instead of eight."""

from __future__ import annotations

from dataclasses import replace

from ...settings import Settings
from ._change import Change, Context

_EIGHT_BIT = "8bit"


def _improved(settings: Settings, context: Context) -> tuple[Settings, ...]:
    if context.target.is_cpu or settings.optimizer == _EIGHT_BIT or settings.parallel == "fsdp2":
        return ()
    return (replace(settings, optimizer=_EIGHT_BIT),)


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    del before, after
    return "the optimizer's states have 8 bits", "Updates are rounded, as you allowed"


EIGHT_BIT = Change("optimizer", _describe, _improved, permission="optimizer", value=_EIGHT_BIT, for_memory=True)
