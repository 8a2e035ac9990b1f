"""The largest pieces that fit: a search over predictions, which it is handed the function for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import CannotFit
from ..ledger import Prediction
from ..settings import Settings
from ..units import format_size

Predict = Callable[[Settings], Prediction]
_LARGEST_BATCH = 1024
_MANY = 8  # samples of the second prediction that a line is drawn through


@dataclass(frozen=True)
class Move:
    """One change to what was asked for, why it was made, and what it costs."""

    what: str
    why: str
    cost: str


@dataclass(frozen=True)
class Plan:
    """Settings that fit.

    Attributes:
        asked: the settings that were asked for.
        settings: those to train with.
        budget: bytes of the device (of the process on the CPU) that they must fit into.
        before: what was asked for would need.
        after: what the chosen settings need.
        moves: how one became the other.
    """

    asked: Settings
    settings: Settings
    budget: int
    before: Prediction
    after: Prediction
    moves: tuple[Move, ...]


def plan(asked: Settings, budget: int, predict: Predict, least: int = 1) -> Plan:
    """Split the batch into the largest pieces that fit comfortably.

    Args:
        asked: what is wanted.
        budget: bytes of the device, as nvidia-smi shows them; of the process on the CPU.
        predict: what settings would need.
        least: samples that a piece must have; BatchNorm needs two.

    Raises:
        CannotFit: not even the smallest pieces fit; the message says what they would need.
    """
    before = predict(asked)
    if _fits(before, budget):
        return Plan(asked, asked, budget, before, before, ())
    most = asked.micro_batch or asked.batch
    smallest = predict(replace(asked, micro_batch=min(least, most)))
    if most <= least or not _fits(smallest, budget):
        need = format_size(smallest.device.value)
        raise CannotFit(
            f"pieces of {min(least, most)} need {need}, and the budget is {format_size(budget)}",
            "make the images smaller, take a smaller network, or give it more memory",
        )
    settings, after = _largest(asked, (least, most), (smallest, before), budget, predict)
    return Plan(asked, settings, budget, before, after, (_split(asked, settings, before, budget),))


def largest_batch(asked: Settings, budget: int, predict: Predict) -> Settings:
    """The largest batch that fits as one piece.

    Raises:
        CannotFit: not even one sample does.
    """
    one, many = replace(asked, batch=1, micro_batch=None), replace(asked, batch=_MANY, micro_batch=None)
    small, large = predict(one), predict(many)
    if not _fits(small, budget):
        raise CannotFit(f"not even one sample fits into {format_size(budget)}", "make the images smaller")
    guess = min(_crossing((1, _MANY), (small, large), budget), _LARGEST_BATCH)
    while guess > 1 and not _fits(predict(replace(asked, batch=guess, micro_batch=None)), budget):
        guess -= max(guess // 16, 1)
    return replace(asked, batch=guess, micro_batch=None)


def _fits(made: Prediction, budget: int) -> bool:
    return made.device.high <= budget


def _largest(
    asked: Settings, sizes: tuple[int, int], made: tuple[Prediction, Prediction], budget: int, predict: Predict
) -> tuple[Settings, Prediction]:
    """The largest pieces that fit, between the smallest, which do, and all of the batch, which doesn't."""
    size = min(_crossing(sizes, made, budget), sizes[1] - 1)
    while size > sizes[0]:
        # As even as can be: 10 samples in pieces of at most 4 are 4 + 3 + 3, so pieces of 4 are asked for.
        even = -(-asked.batch // -(-asked.batch // size))
        settings = replace(asked, micro_batch=even)
        found = predict(settings)
        if _fits(found, budget):
            return settings, found
        size = even - max(even // 16, 1)
    return replace(asked, micro_batch=sizes[0]), made[0]


def _crossing(sizes: tuple[int, int], made: tuple[Prediction, Prediction], budget: int) -> int:
    """The size at which the budget is used up, on a straight line through two predictions."""
    (small, large), (below, above) = sizes, (one.device.high for one in made)
    each = max((above - below) / max(large - small, 1), 1.0)
    return max(int(small + (budget - below) / each), 1)


def _split(asked: Settings, chosen: Settings, before: Prediction, budget: int) -> Move:
    return Move(
        what=f"the batch of {asked.batch} goes through in {len(chosen.pieces)} pieces of at most {chosen.micro_batch}",
        why=f"in one piece it may need up to {format_size(before.device.high)}, and there are {format_size(budget)}",
        cost="BatchNorm sees the pieces; the optimizer still sees the whole batch",
    )
