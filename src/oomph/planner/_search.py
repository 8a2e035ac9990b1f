"""The search for the fastest settings that fit.

Changes that cost nothing come first. Then every number of micro-batches with every set of checkpointed modules is
estimated by the structure of one traced step, and the fastest that should fit is confirmed by a full trace. What that
trace says corrects the estimates of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..errors import UsageError
from ..prediction import Estimate, Origin, Prediction
from ..settings import Settings
from ._checkpoint_sets import checkpoint_sets
from ._predictor import Predictor
from ._request import PlanRequest
from ._step_profile import StepProfile
from .changes import CHANGES, Change, Context

_MAX_CONFIRMATIONS = 6
_MAX_COUNTS = 24
_SAME_SPEED = 1.05  # settings whose times differ less are ranked by their changes: a split changes BatchNorm
_WORTH_ANOTHER = 0.98  # part of the time that a candidate has to promise for another confirmation
_TIME_RANGE = 2.0


@dataclass(frozen=True)
class Candidate:
    """Settings with their estimated memory, in bytes that torch allocates, and seconds of a step."""

    settings: Settings
    memory: int
    seconds: float

    @property
    def rank(self) -> tuple[int, int, int]:
        """The order of preference: faster, then fewer micro-batches, then less recomputed."""
        speed = round(math.log(max(self.seconds, 1e-9)) / math.log(_SAME_SPEED))
        checkpointing = self.settings.checkpointing
        recomputed = len(checkpointing) if isinstance(checkpointing, tuple) else 0
        return speed, len(self.settings.micro_batch_sizes), recomputed


@dataclass(frozen=True)
class Stage:
    """Settings after some of the changes that cost nothing, and the profile of a step with them."""

    settings: Settings
    profile: StepProfile

    @property
    def memory(self) -> int:
        """The estimated bytes without checkpointing."""
        return self.profile.memory(self._micro_batch, (), self.settings.offload)

    @property
    def seconds(self) -> float:
        """The estimated time without checkpointing."""
        return self.profile.seconds(self._micro_batch, (), self.settings.offload)

    @property
    def _micro_batch(self) -> int:
        return self.settings.micro_batch or self.settings.batch


@dataclass(frozen=True)
class Correction:
    """How estimates become bytes of the device: a factor of what torch allocates, and what is outside."""

    factor: float
    outside: float
    memory: int
    device: float

    def need(self, candidate: Candidate) -> float:
        """Return the upper bound of a candidate's need."""
        return candidate.memory * self.factor + self.outside

    @classmethod
    def by(cls, prediction: Prediction, memory: int) -> Correction:
        """Return what makes an estimate agree with a prediction."""
        factor, device = prediction.full_speed.high / max(memory, 1), prediction.device.high
        return cls(factor, device - prediction.full_speed.high, memory, device)

    def and_by(self, prediction: Prediction, memory: int) -> Correction:
        """Return the line through this prediction and another one; some memory doesn't shrink with the estimate."""
        other = Correction.by(prediction, memory)
        if memory == self.memory:
            return other
        factor = (other.device - self.device) / (memory - self.memory)
        return replace(other, factor=factor, outside=other.device - factor * memory) if factor > 0 else other


@dataclass(frozen=True)
class Winner:
    """The fastest confirmed settings, and what the search saw."""

    candidate: Candidate
    prediction: Prediction
    candidates: tuple[Candidate, ...]
    correction: Correction


class Search:
    """Searches the settings of one request."""

    def __init__(self, request: PlanRequest, predictor: Predictor) -> None:
        self.request, self.predictor = request, predictor

    def stages(self, start: Settings) -> list[Stage]:
        """Return settings with more and more changes that cost nothing or are allowed, the given ones first."""
        stages = [Stage(start, self.predictor.profile(start))]
        context = Context(self.request.target, stages[0].profile.has_convolutions, stages[0].profile.classes)
        for change in CHANGES:
            if self._may(change) and not (change.for_memory and self._has_room(stages[-1])):
                stages += self._improved(change, stages[-1], context)
        return stages

    def _has_room(self, stage: Stage) -> bool:
        return self.fits(self.predictor.predict(stage.settings))

    def _may(self, change: Change) -> bool:
        is_allowed = change.permission is None or change.permission in self.request.allow
        return is_allowed and change.setting not in self.request.fixed

    def _improved(self, change: Change, before: Stage, context: Context) -> Iterator[Stage]:
        for improved in change.improved(before.settings, context):
            try:
                stage = Stage(improved, self.predictor.profile(improved))
            except UsageError:  # the Job can't do it: its optimizer has no fused implementation
                continue
            if not change.for_memory or stage.memory < before.memory:
                yield stage
            return

    def fastest(self, stage: Stage) -> Winner | None:
        """Return the fastest settings that fit, with any micro-batches and checkpointing; None if none do."""
        candidates = self.candidates(stage)
        first = candidates[0]
        start = correction = Correction.by(self.predictor.predict(first.settings), first.memory)
        best: tuple[Candidate, Prediction] | None = None
        tried: set[Settings] = set()
        for _ in range(_MAX_CONFIRMATIONS):
            limit = math.inf if best is None else best[0].seconds * _WORTH_ANOTHER
            hopeful = [
                candidate
                for candidate in candidates
                if candidate.settings not in tried
                and candidate.seconds < limit
                and correction.need(candidate) <= self.request.budget
            ]
            if not hopeful:
                break
            candidate = min(hopeful, key=lambda candidate: candidate.rank)
            tried.add(candidate.settings)
            prediction = self.predictor.predict(candidate.settings)
            correction = start.and_by(prediction, candidate.memory)
            if self.fits(prediction):
                best = candidate, prediction
        if best is None:
            smallest = min(candidates, key=lambda candidate: candidate.memory)
            prediction = self.predictor.predict(smallest.settings)
            if not self.fits(prediction):
                return None
            best = smallest, prediction
        return Winner(best[0], with_seconds(best[1], best[0].seconds), candidates, correction)

    def fits(self, prediction: Prediction) -> bool:
        """Return True if settings run at full speed within the budget."""
        return prediction.device.high <= self.request.budget

    def candidates(self, stage: Stage) -> tuple[Candidate, ...]:
        """Return all micro-batches and checkpointed modules, estimated; the settings of the stage first."""
        profile, settings = stage.profile, stage.settings
        found: dict[Settings, Candidate] = {}
        sizes = self._micro_batches(settings, profile.min_micro_batch)
        for micro_batch in sizes:
            sets: Sequence[tuple[str, ...]] = ((),)
            # On the CPU smaller micro-batches cost nothing, so that recomputation is left for when they are smallest.
            may_recompute = not self.request.target.is_cpu or micro_batch == sizes[-1]
            if may_recompute and "checkpointing" not in self.request.fixed:
                sets = checkpoint_sets(profile, micro_batch)
            for paths in sets:
                changed = replace(
                    settings,
                    micro_batch=micro_batch if micro_batch < settings.batch else None,
                    checkpointing=paths or "none",
                )
                memory = profile.memory(micro_batch, paths, settings.offload)
                seconds = profile.seconds(micro_batch, paths, settings.offload)
                found.setdefault(changed, Candidate(changed, memory, seconds))
        return tuple(found.values())

    def _micro_batches(self, settings: Settings, smallest: int) -> list[int]:
        """Return sizes of even micro-batches, the requested one first."""
        largest = settings.micro_batch or settings.batch
        smallest = min(max(self.request.min_micro_batch, smallest), largest)
        if "micro_batch" in self.request.fixed:
            return [largest]
        counts = range(-(-settings.batch // largest), settings.batch // smallest + 1)
        sizes = list(dict.fromkeys(-(-settings.batch // count) for count in counts))
        if self.request.equal_parts:
            sizes = [size for size in sizes if settings.batch % size == 0]
        if len(sizes) <= _MAX_COUNTS:
            return sizes or [largest]
        few = sizes[: _MAX_COUNTS // 2]
        steps = (len(sizes) - len(few)) / (_MAX_COUNTS - len(few))
        return [*few, *(sizes[int(len(few) + steps * index)] for index in range(_MAX_COUNTS - len(few) - 1)), sizes[-1]]


def with_seconds(prediction: Prediction, seconds: float) -> Prediction:
    """Return a prediction with the time of the whole batch."""
    estimate = Estimate(seconds / _TIME_RANGE, seconds, seconds * _TIME_RANGE, Origin.ASSUMED)
    return replace(prediction, seconds=estimate)
