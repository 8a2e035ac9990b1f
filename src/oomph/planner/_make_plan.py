"""Plans of the fastest settings that fit."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..errors import CannotFit
from ..prediction import Prediction, update_bytes
from ..settings import Settings
from ..units import format_size
from ._alternatives import alternatives
from ._plan import Plan, PlanChange
from ._predictor import Predictor
from ._request import PERMISSIONS, PlanRequest
from ._search import Search, Stage, Winner, with_seconds
from .changes import CHANGES, offloaded, slow_precision, smaller_sizes


def plan_fastest(request: PlanRequest, predictor: Predictor) -> Plan:
    """Return the settings that fit and take the least time per step, with the requested batch.

    Raises:
        CannotFit: nothing fits; the message says what it would need and which permission would help.
    """
    requested = request.settings
    requested_need = predictor.predict(requested)
    search = Search(request, predictor)
    stages, winner = _first_winner(search, requested)
    if winner is None:
        raise _cannot_fit(request, predictor, stages[-1])
    profile = stages[0].profile
    checkpointed = requested.checkpointing if isinstance(requested.checkpointing, tuple) else ()
    seconds = profile.seconds(requested.micro_batch or requested.batch, checkpointed, requested.offload)
    _check_slowdown(request, winner)
    need = format_size(requested_need.device.high)
    short = f"the requested settings may need up to {need}, and the budget is {format_size(request.budget)}"
    why = "it is faster" if search.fits(requested_need) else short
    return Plan(
        requested=requested,
        settings=winner.candidate.settings,
        budget=request.budget,
        requested_need=with_seconds(requested_need, seconds),
        planned_need=winner.prediction,
        changes=tuple(_changes(stages, winner, why)),
        alternatives=alternatives(winner, request.budget),
    )


def _first_winner(search: Search, requested: Settings) -> tuple[list[Stage], Winner | None]:
    """Return the changes that cost nothing and the fastest settings after them; smaller sizes only if nothing fits."""
    stages = search.stages(requested)
    winner = search.fastest(stages[-1])
    if winner is None and not _states_fit(search, stages[-1]):
        return stages, None
    if winner is None and "precision" in search.request.allow and "precision" not in search.request.fixed:
        for settings in slow_precision(stages[-1].settings, search.request.target):
            stages = [*stages, Stage(settings, search.predictor.profile(settings))]
            winner = search.fastest(stages[-1])
    if winner is None and "offload" not in search.request.fixed:
        for settings in offloaded(stages[-1].settings, search.request.target):
            last = Stage(settings, stages[-1].profile)
            winner = search.fastest(last)
            stages = stages if winner is None else [*stages, last]
    if winner is not None or "size" not in search.request.allow:
        return stages, winner
    smaller = smaller_sizes(stages[-1].settings)
    winners: dict[Settings, tuple[list[Stage], Winner | None]] = {}

    def fits(settings: Settings) -> bool:
        stage = Stage(settings, search.predictor.profile(settings))
        winners[settings] = [*stages, stage], search.fastest(stage)
        return winners[settings][1] is not None

    first = bisect.bisect_left(smaller, True, key=fits)  # noqa: FBT003  the first that fits
    return winners[smaller[first]] if first < len(smaller) else (stages, None)


def _changes(stages: Sequence[Stage], winner: Winner, why: str) -> Iterator[PlanChange]:
    """Yield each change with what it adds to memory and time."""
    yield from stage_changes(stages, why)
    memory, seconds = stages[-1].memory, stages[-1].seconds
    last, planned = stages[-1], winner.candidate.settings
    paths = planned.checkpointing if isinstance(planned.checkpointing, tuple) else ()
    checkpointed = replace(planned, micro_batch=last.settings.micro_batch)
    for before_change, after_change in ((last.settings, checkpointed), (checkpointed, planned)):
        for change in CHANGES:
            if change.is_in(before_change, after_change):
                micro_batch = after_change.micro_batch or after_change.batch
                next_memory, next_seconds = (
                    last.profile.memory(micro_batch, paths, planned.offload),
                    last.profile.seconds(micro_batch, paths, planned.offload),
                )
                what, cost = change.describe(before_change, after_change)
                yield PlanChange(what, why, cost, next_memory - memory, next_seconds - seconds)
                memory, seconds = next_memory, next_seconds


def stage_changes(stages: Sequence[Stage], why: str) -> Iterator[PlanChange]:
    """Yield the changes from each stage to the next, with what they add to memory and time."""
    memory, seconds = stages[0].memory, stages[0].seconds
    for before, after in itertools.pairwise(stages):
        for change in CHANGES:
            # 8-bit states replace a fused update.
            if change.is_in(before.settings, after.settings) and change.is_in(before.settings, stages[-1].settings):
                what, cost = change.describe(before.settings, after.settings)
                yield PlanChange(what, why, cost, after.memory - memory, after.seconds - seconds)
                memory, seconds = after.memory, after.seconds


def _check_slowdown(request: PlanRequest, winner: Winner) -> None:
    fastest = min(candidate.seconds for candidate in winner.candidates)
    slowdown = winner.candidate.seconds / fastest
    if request.max_slowdown is not None and slowdown > request.max_slowdown:
        raise CannotFit(
            f"the fastest settings that fit into {format_size(request.budget)} take {slowdown:.2f} times as long as "
            f"without a limit, and max_slowdown is {request.max_slowdown:g}",
            "allow more time, or use a GPU with more memory",
        )


def _cannot_fit(request: PlanRequest, predictor: Predictor, stage: Stage) -> CannotFit:
    """Return the error: what the smallest settings need, and which permission would help."""
    settings, prediction = _smallest_need(Search(request, predictor), stage)
    fix = "use a smaller model, or a larger budget"
    helpful = _helpful_permissions(request, predictor, prediction)
    if helpful is not None:
        allow, winner = helpful
        planned = winner.candidate.settings
        what = f"{planned.precision} at {planned.size}" if planned.size else planned.precision
        need = format_size(winner.prediction.device.high)
        fix = f"--allow {','.join(allow)} would make it fit ({what}, up to {need}); or {fix}"
    recomputed = " with everything recomputed" if settings.checkpointing != "none" else ""
    return CannotFit(
        f"micro-batches of {settings.micro_batch or settings.batch}{recomputed} need up to "
        f"{format_size(prediction.device.high)}, and the budget is {format_size(request.budget)}",
        fix,
    )


def _helpful_permissions(
    request: PlanRequest, predictor: Predictor, smallest: Prediction
) -> tuple[tuple[str, ...], Winner] | None:
    """Return permissions that would make it fit, none of them needless, and the settings; None if none would."""
    # Where weights, gradients and states alone are too large, only smaller states could help.
    useful = PERMISSIONS if _update_need(smallest) <= request.budget else ("optimizer",)

    def with_permissions(allow: tuple[str, ...]) -> Winner | None:
        return _first_winner(Search(replace(request, allow=allow), predictor), request.settings)[1]

    allow = request.allow
    for added in useful:
        if added in allow:
            continue
        allow = (*allow, added)
        winner = with_permissions(allow)
        if winner is None:
            continue
        for name in (name for name in allow[:-1] if name not in request.allow):
            fewer = tuple(other for other in allow if other != name)
            without = with_permissions(fewer)
            if without is not None:
                allow, winner = fewer, without
        return allow, winner
    return None


def _smallest_need(search: Search, stage: Stage) -> tuple[Settings, Prediction]:
    smallest = min(search.candidates(stage), key=lambda candidate: candidate.memory)
    return smallest.settings, search.predictor.predict(smallest.settings)


def _states_fit(search: Search, stage: Stage) -> bool:
    """Return True if weights, gradients and the optimizer's states fit, which nothing else makes smaller."""
    return _update_need(_smallest_need(search, stage)[1]) <= search.request.budget


def _update_need(prediction: Prediction) -> float:
    return update_bytes(prediction) + prediction.device.high - prediction.full_speed.high
