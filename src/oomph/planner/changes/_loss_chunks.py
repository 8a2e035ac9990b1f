"""Cross entropies in chunks of rows: with many classes, copies of the logits are most of the memory."""

from __future__ import annotations

from dataclasses import replace

from ...settings import Settings
from ._change import Change, Context

_CHUNKS = 8  # more save little: one eighth of a copy of the logits is left
_MIN_CLASSES = 4096


def _improved(settings: Settings, context: Context) -> tuple[Settings, ...]:
    if context.classes <= _MIN_CLASSES or settings.loss_chunks > 1:
        return ()
    return (replace(settings, loss_chunks=_CHUNKS),)


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    del before
    return f"the cross entropy is computed in {after.loss_chunks} chunks of rows", "The last bits may differ"


LOSS_CHUNKS = Change("loss_chunks", _describe, _improved, for_memory=True)
