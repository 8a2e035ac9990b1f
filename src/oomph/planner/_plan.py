"""The largest pieces that fit: a search over predictions, which it is handed the function for."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..errors import CannotFit
from ..prediction import Prediction
from ..settings import Settings
from ..units import format_size
from ._leeway import AllowedChanges
from ._move import PlanChange, moves

Predict = Callable[[Settings], Prediction]
_LARGEST_BATCH = 1024
_MANY = 8  # samples of the second prediction that a line is drawn through


@dataclass(frozen=True)
class Plan:
    """Settings that fit.

    Attributes:
        requested: the settings that were requested.
        settings: the settings to train with.
        budget: bytes of the device (on the CPU: of the process) that they must fit into.
        requested_need: the prediction for the requested settings.
        planned_need: the prediction for the settings to train with.
        changes: how the requested settings became the planned ones.
        reserved: bytes of the user's budget set aside beforehand for memory that isn't predicted.
    """

    requested: Settings
    settings: Settings
    budget: int
    requested_need: Prediction
    planned_need: Prediction
    changes: tuple[PlanChange, ...]
    reserved: int = 0


def plan(asked: Settings, budget: int, predict: Predict, least: int = 1, leeway: AllowedChanges | None = None) -> Plan:
    """Split the batch into the largest pieces that fit comfortably; where none do, change what may be changed.

    Args:
        asked: what is wanted.
        budget: bytes of the device, as nvidia-smi shows them; of the process on the CPU.
        predict: what settings would need.
        least: samples that a piece must have; BatchNorm needs two.
        leeway: what may be changed beside the pieces; nothing if None.

    Raises:
        CannotFit: nothing fits; the message says what it would need, and which yes of the user's would help.
    """
    predict = functools.cache(predict)
    before = predict(asked)
    if _fits(before, budget):
        return Plan(asked, asked, budget, before, before, ())
    leeway, least = leeway or AllowedChanges(), min(least, asked.micro_batch or asked.batch)
    way = _way(asked, least, leeway, budget, predict)
    if way is None:
        raise _refusal(asked, least, leeway, budget, predict)
    settings, after = _largest(way, least, budget, predict)
    why = f"as asked it may need up to {format_size(before.device.high)}, and there are {format_size(budget)}"
    return Plan(asked, settings, budget, before, after, moves(asked, settings, why))


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


def _way(asked: Settings, least: int, leeway: AllowedChanges, budget: int, predict: Predict) -> Settings | None:
    """The settings with the fewest changes whose smallest pieces fit."""

    def fits(way: Settings) -> bool:
        return _fits(predict(replace(way, micro_batch=least)), budget)

    found = next((way for way in leeway.candidates(asked) if fits(way)), None)
    smaller = [] if found is not None else leeway.smaller_images(asked)
    at = bisect.bisect_left(smaller, True, key=fits)  # noqa: FBT003  the first one for which it holds
    return smaller[at] if at < len(smaller) else found


def _refusal(asked: Settings, least: int, leeway: AllowedChanges, budget: int, predict: Predict) -> CannotFit:
    """What all that is allowed would need, and what would fit."""
    tried = [*leeway.candidates(asked), *leeway.smaller_images(asked)[-1:]]
    need = min(predict(replace(way, micro_batch=least)).device.high for way in tried)
    fix = "take a smaller network, or give it more memory"
    for more in _helpful(leeway, asked, least, budget, predict):
        way = _way(asked, least, more, budget, predict)
        if way is not None:
            change = f"{way.precision} at {way.size}" if way.size else way.precision
            needed = format_size(predict(replace(way, micro_batch=least)).device.high)
            fix = f"--allow {','.join(more.allowed)} would make it fit ({change}, up to {needed}); or {fix}"
            break
    return CannotFit(f"pieces of {least} need up to {format_size(need)}, and the budget is {format_size(budget)}", fix)


def _helpful(
    leeway: AllowedChanges, asked: Settings, least: int, budget: int, predict: Predict
) -> Iterator[AllowedChanges]:
    """More and more to say yes to; nothing where not even all of it would help."""
    with_more = list(leeway.with_more())
    *_, furthest = (
        [asked] if not with_more else [*with_more[-1].candidates(asked), *with_more[-1].smaller_images(asked)]
    )
    if _fits(predict(replace(furthest, micro_batch=least)), budget):
        yield from with_more


def _largest(way: Settings, least: int, budget: int, predict: Predict) -> tuple[Settings, Prediction]:
    """The largest pieces that fit, of settings whose smallest do."""
    whole, most = predict(way), way.micro_batch or way.batch
    if _fits(whole, budget):
        return way, whole
    smallest = predict(replace(way, micro_batch=least))
    size = min(_crossing((least, most), (smallest, whole), budget), most - 1)
    while size > least:
        # As even as can be: 10 samples in pieces of at most 4 are 4 + 3 + 3, so pieces of 4 are asked for.
        even = -(-way.batch // -(-way.batch // size))
        settings = replace(way, micro_batch=even)
        found = predict(settings)
        if _fits(found, budget):
            return settings, found
        size = even - max(even // 16, 1)
    return replace(way, micro_batch=least), smallest


def _crossing(sizes: tuple[int, int], made: tuple[Prediction, Prediction], budget: int) -> int:
    """The size at which the budget is used up, on a straight line through two predictions."""
    (small, large), (below, above) = sizes, (one.device.high for one in made)
    each = max((above - below) / max(large - small, 1), 1.0)
    return max(int(small + (budget - below) / each), 1)
