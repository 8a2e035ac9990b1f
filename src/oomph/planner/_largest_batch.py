"""Plans of the largest batch that runs in one piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import CannotFit
from ..settings import Settings
from ..units import count_of, format_size
from ._make_plan import stage_changes
from ._micro_batch import fitting_samples
from ._plan import Plan, PlanChange
from ._predictor import Predictor
from ._request import PlanRequest
from ._search import Search

_MAX_BATCH = 1 << 20
_PROBE_BATCH = 8  # samples of the second prediction that the linear estimate goes through


def plan_largest_batch(request: PlanRequest, predictor: Predictor) -> Plan:
    """Return the largest batch that runs in one piece, with changes that cost nothing.

    It plans by `needed`, the smallest cap of the allocator under which the step runs, with its upper bound.

    Raises:
        CannotFit: not even one sample fits.
    """
    # No budget: whatever saves memory makes room for more samples.
    unlimited = replace(request, settings=replace(request.settings, micro_batch=None), budget=0)
    stages = Search(unlimited, predictor).stages(unlimited.settings)
    base, smallest = stages[-1].settings, stages[-1].profile.min_micro_batch

    def with_batch(batch: int) -> Settings:
        return replace(base, batch=batch)

    def need(batch: int) -> float:
        prediction = predictor.predict(with_batch(batch))
        return prediction.needed.high + prediction.device.high - prediction.full_speed.high

    batch = largest_fitting(need, request.budget, smallest=smallest)
    if not batch:
        raise CannotFit(
            f"not even {count_of(smallest, 'sample fits', 'samples fit')} into {format_size(request.budget)}: it may "
            f"need up to {format_size(need(smallest))}",
            "use smaller images or a smaller model, or a larger budget",
        )
    why = f"it is the largest batch that fits into {format_size(request.budget)}"
    changes = [*stage_changes(stages, why)]
    if batch != request.settings.batch:
        what = f"the batch is {batch} instead of {request.settings.batch}"
        changes.append(PlanChange(what, why, "The learning rate may have to follow"))
    return Plan(
        requested=request.settings,
        settings=with_batch(batch),
        budget=request.budget,
        requested_need=predictor.predict(request.settings),
        planned_need=predictor.predict(with_batch(batch)),
        changes=tuple(changes),
    )


def largest_fitting(need: Callable[[int], float], budget: int, limit: int = _MAX_BATCH, smallest: int = 1) -> int:
    """Return the largest number of samples whose need, which grows with it, is within the budget; 0 if none is.

    Few calls: the need is nearly linear, so that each one tells how far the limit is.
    """
    low, low_need = smallest, need(smallest)
    if low_need > budget:
        return 0
    high = max(min(_PROBE_BATCH, limit), smallest)
    high_need = need(high)
    while high_need <= budget and high < limit:
        guess = fitting_samples((low, low_need), (high, high_need), budget)
        low, low_need, high = high, high_need, min(max(guess, high + 1) + 1, limit)
        high_need = need(high)
    if high_need <= budget:
        return high
    while high - low > 1:
        guess = fitting_samples((low, low_need), (high, high_need), budget)
        middle = min(max(guess, low + 1), high - 1)
        middle_need = need(middle)
        if middle_need <= budget:
            low, low_need = middle, middle_need
        else:
            high, high_need = middle, middle_need
    return low
