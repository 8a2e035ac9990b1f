"""Activation checkpointing: some modules keep only their inputs and run again in backward."""

from __future__ import annotations

from ...settings import Settings
from ...units import count_of
from ._change import Change

_MAX_NAMES = 6


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    del before
    return f"{_named(after.checkpointing)} in the backward pass", "Time; the gradient is the same"


def _named(checkpointing: str | tuple[str, ...]) -> str:
    if checkpointing == "none":
        return "nothing is recomputed"
    if isinstance(checkpointing, str):
        return f"the {checkpointing} of the network are recomputed"
    names = ", ".join(checkpointing[:_MAX_NAMES])
    more = f" and {len(checkpointing) - _MAX_NAMES} more" if len(checkpointing) > _MAX_NAMES else ""
    verb = "is" if len(checkpointing) == 1 else "are"
    return f"{count_of(len(checkpointing), 'module', 'modules')} ({names}{more}) {verb} recomputed"


CHECKPOINTING = Change("checkpointing", _describe)
