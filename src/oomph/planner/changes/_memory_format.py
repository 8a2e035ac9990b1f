"""channels_last: convolutions on tensor cores need no conversion of their inputs."""

from __future__ import annotations

from dataclasses import replace

from ...settings import Settings
from ._change import Change, Context

_TENSOR_CORES = (7, 0)


def _improved(settings: Settings, context: Context) -> tuple[Settings, ...]:
    has_gain = context.has_convolutions and not context.target.is_cpu and context.target.capability >= _TENSOR_CORES
    if not has_gain or settings.memory_format != "contiguous" or settings.parallel == "fsdp2":
        return ()
    return (replace(settings, memory_format="channels_last"),)


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    return f"the memory format is {after.memory_format} instead of {before.memory_format}", "The last bits may differ"


MEMORY_FORMAT = Change("memory_format", _describe, _improved)
