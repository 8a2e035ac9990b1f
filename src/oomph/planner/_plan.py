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


def plan(asked: Settings, budget: int, predict: Predict) -> Plan:
    """Split the batch into the largest pieces that fit comfortably.

    Args:
        asked: what is wanted.
        budget: bytes of the device, as nvidia-smi shows them; of the process on the CPU.
        predict: what settings would need.

    Raises:
        CannotFit: not even pieces of one sample fit; the message says what they would need.
    """
    before = predict(asked)
    if _fits(before, budget):
        return Plan(asked, asked, budget, before, before, ())
    found = _largest(asked.micro_batch or asked.batch, lambda size: _at(asked, size, budget, predict))
    if found is None:
        least = predict(replace(asked, micro_batch=1))
        need = format_size(least.device.value)
        raise CannotFit(
            f"pieces of a single sample need {need}, and the budget is {format_size(budget)}",
            "make the images smaller, take a smaller network, or give it more memory",
        )
    settings, after = found
    return Plan(asked, settings, budget, before, after, (_split(asked, settings, before, budget),))


def largest_batch(asked: Settings, budget: int, predict: Predict) -> Settings:
    """The largest batch that fits as one piece.

    Raises:
        CannotFit: not even one sample does.
    """

    def attempt(size: int) -> tuple[Settings, Prediction] | None:
        settings = replace(asked, batch=size, micro_batch=None)
        made = predict(settings)
        return (settings, made) if _fits(made, budget) else None

    found = _largest(_LARGEST_BATCH, attempt)
    if found is None:
        raise CannotFit(f"not even one sample fits into {format_size(budget)}", "make the images smaller")
    return found[0]


def _fits(made: Prediction, budget: int) -> bool:
    return made.device.high <= budget


def _at(asked: Settings, size: int, budget: int, predict: Predict) -> tuple[Settings, Prediction] | None:
    # As even as can be: 10 samples in pieces of at most 4 are 4 + 3 + 3, so pieces of 4 are asked for.
    pieces = -(-asked.batch // size)
    settings = replace(asked, micro_batch=-(-asked.batch // pieces))
    made = predict(settings)
    return (settings, made) if _fits(made, budget) else None


def _largest(
    most: int, attempt: Callable[[int], tuple[Settings, Prediction] | None]
) -> tuple[Settings, Prediction] | None:
    """The attempt with the largest size that comes out, by halving what is between."""
    low, high = 0, most + 1
    best = None
    while high - low > 1:
        middle = (low + high) // 2
        found = attempt(middle)
        if found is None:
            high = middle
        else:
            best, low = found, middle
    return best


def _split(asked: Settings, chosen: Settings, before: Prediction, budget: int) -> Move:
    return Move(
        what=f"the batch of {asked.batch} goes through in {len(chosen.pieces)} pieces of at most {chosen.micro_batch}",
        why=f"in one piece it would need {format_size(before.device.value)} of {format_size(budget)}",
        cost="BatchNorm sees the pieces; the optimizer still sees the whole batch",
    )
