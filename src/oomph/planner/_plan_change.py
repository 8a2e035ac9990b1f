"""Descriptions of the changes that a plan makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..settings import Settings
from ..units import count_of


@dataclass(frozen=True)
class PlanChange:
    """One change to the requested settings, its reason and its cost."""

    what: str
    why: str
    cost: str


def describe_changes(requested: Settings, planned: Settings, why: str) -> tuple[PlanChange, ...]:
    """Return the changes from the requested to the planned settings, micro-batches last."""
    return tuple(PlanChange(what, why, cost) for what, cost in _changes(requested, planned))


def _changes(requested: Settings, planned: Settings) -> Iterator[tuple[str, str]]:
    if planned.checkpointing != requested.checkpointing:
        yield (
            "the blocks of the network are recomputed in the backward pass",
            "About a third more time; the gradient is the same",
        )
    if planned.precision != requested.precision:
        yield (
            f"the precision is {planned.precision} instead of {requested.precision}",
            "Numbers are rounded, as you allowed",
        )
    if planned.size != requested.size:
        yield (
            f"the image size is {planned.size} instead of {requested.size} pixels",
            "Detail is lost, as you allowed",
        )
    sizes = planned.micro_batch_sizes
    if sizes != requested.micro_batch_sizes:
        count = count_of(len(sizes), "micro-batch", "micro-batches")
        yield (
            f"the batch of {requested.batch} is split into {count} of at most {planned.micro_batch}",
            "BatchNorm sees micro-batches; the optimizer still sees the whole batch",
        )
