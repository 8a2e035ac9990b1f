"""Activations in pinned host memory: what checkpointing has to keep, too."""

from __future__ import annotations

from dataclasses import replace

from ...machine import Target
from ...settings import Settings
from ._change import Change

_WHOLE_MODEL = ("",)


def offloaded(settings: Settings, target: Target) -> tuple[Settings, ...]:
    """Return settings with everything offloaded, where there is a device to offload from."""
    if target.is_cpu or settings.offload:
        return ()
    return (replace(settings, offload=_WHOLE_MODEL),)


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    del before
    modules = "all modules" if after.offload == _WHOLE_MODEL else ", ".join(after.offload)
    return f"activations of {modules} are in pinned host memory until the backward pass", "Time and host memory"


OFFLOAD = Change("offload", _describe)
