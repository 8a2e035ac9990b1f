"""Changes to what was asked for, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..settings import Settings


@dataclass(frozen=True)
class PlanChange:
    """One change to what was asked for, why it was made, and what it costs."""

    what: str
    why: str
    cost: str


def moves(asked: Settings, chosen: Settings, why: str) -> tuple[PlanChange, ...]:
    """How one became the other, pieces last."""
    return tuple(PlanChange(what, why, cost) for what, cost in _told(asked, chosen))


def _told(asked: Settings, chosen: Settings) -> Iterator[tuple[str, str]]:
    if chosen.checkpointing != asked.checkpointing:
        yield (
            "the blocks of the network are computed again in the backward pass instead of being kept",
            "About a third more time; the gradient is the same",
        )
    if chosen.precision != asked.precision:
        yield (
            f"it is computed in {chosen.precision} and not in {asked.precision}",
            "Numbers are rounded, as you allowed",
        )
    if chosen.size != asked.size:
        yield f"images are {chosen.size} and not {asked.size} pixels a side", "Detail is lost, as you allowed"
    if chosen.micro_batch_sizes != asked.micro_batch_sizes:
        yield (
            f"the batch of {asked.batch} goes through in {len(chosen.micro_batch_sizes)} pieces of at most {chosen.micro_batch}",
            "BatchNorm sees the pieces; the optimizer still sees the whole batch",
        )
