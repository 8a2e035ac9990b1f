"""Micro-batches: the batch runs in parts, and the gradients are accumulated."""

from __future__ import annotations

from ...settings import Settings
from ...units import count_of
from ._change import Change


def _describe(before: Settings, after: Settings) -> tuple[str, str]:
    del before
    parts = count_of(len(after.micro_batch_sizes), "micro-batch", "micro-batches")
    return (
        f"the batch of {after.batch} is split into {parts} of at most {max(after.micro_batch_sizes)}",
        "BatchNorm sees micro-batches; the optimizer still sees the whole batch",
    )


MICRO_BATCHES = Change("micro_batch", _describe)
