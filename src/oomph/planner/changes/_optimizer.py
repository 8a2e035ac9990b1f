"""The optimizer's update in one kernel, without temporary copies of all gradients."""

from __future__ import annotations

from dataclasses import replace

from ...settings import Settings
from ._change import Change, Context


def _improved(settings: Settings, context: Context) -> tuple[Settings, ...]:
    if context.target.is_cpu or settings.optimizer != "given":
        return ()
    return (replace(settings, optimizer="fused"),)


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    del before
    return f"the optimizer's update is {after.optimizer}", "The last bits may differ"


OPTIMIZER = Change("optimizer", _describe, _improved, value="fused")
