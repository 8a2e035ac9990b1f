"""Search for the largest micro-batches that fit, given a function that predicts settings."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..errors import CannotFit
from ..prediction import Prediction
from ..settings import Settings
from ..units import format_size
from ._allowed_changes import AllowedChanges
from ._micro_batch import fitting_samples
from ._plan_change import PlanChange, describe_changes

Predict = Callable[[Settings], Prediction]
_MAX_BATCH = 1024
_PROBE_BATCH = 8  # samples of the second prediction that the linear estimate goes through


@dataclass(frozen=True)
class Plan:
    """Settings that fit.

    Attributes:
        requested: the requested settings.
        settings: the settings to train with.
        budget: bytes of the device (on the CPU: of the process) that they must fit into.
        requested_need: the prediction for the requested settings.
        planned_need: the prediction for the settings to train with.
        changes: the changes from the requested to the planned settings.
        reserved: bytes of the user's budget that were reserved beforehand for memory that isn't predicted.
    """

    requested: Settings
    settings: Settings
    budget: int
    requested_need: Prediction
    planned_need: Prediction
    changes: tuple[PlanChange, ...]
    reserved: int = 0


def plan(
    requested: Settings,
    budget: int,
    predict: Predict,
    min_micro_batch: int = 1,
    allowed_changes: AllowedChanges | None = None,
) -> Plan:
    """Split the batch into the largest micro-batches that fit at full speed; if none do, make allowed changes.

    Args:
        requested: the requested settings.
        budget: bytes of the device as nvidia-smi shows them; on the CPU, of the process.
        predict: returns the prediction for settings.
        min_micro_batch: the smallest acceptable micro-batch; BatchNorm needs two samples.
        allowed_changes: changes that are allowed in addition to smaller micro-batches; none by default.

    Raises:
        CannotFit: nothing fits; the message says what it would need and which permission would help.
    """
    predict = functools.cache(predict)
    requested_need = predict(requested)
    if _fits(requested_need, budget):
        return Plan(requested, requested, budget, requested_need, requested_need, ())
    smallest = min(min_micro_batch, requested.micro_batch or requested.batch)
    search = _Search(requested, budget, predict, smallest)
    allowed_changes = allowed_changes or AllowedChanges()
    candidate = search.first_fitting(allowed_changes)
    if candidate is None:
        raise search.cannot_fit(allowed_changes)
    settings, planned_need = search.largest_micro_batch(candidate)
    need = format_size(requested_need.device.high)
    why = f"the requested settings may need up to {need}, and the budget is {format_size(budget)}"
    changes = describe_changes(requested, settings, why)
    return Plan(requested, settings, budget, requested_need, planned_need, changes)


def largest_batch(requested: Settings, budget: int, predict: Predict) -> Settings:
    """Return the settings with the largest batch that fits without being split.

    Raises:
        CannotFit: not even one sample fits.
    """

    def with_batch(batch: int) -> Settings:
        return replace(requested, batch=batch, micro_batch=None)

    single, probe = predict(with_batch(1)), predict(with_batch(_PROBE_BATCH))
    if not _fits(single, budget):
        raise CannotFit(f"not even one sample fits into {format_size(budget)}", "use smaller images")
    batch = max(fitting_samples((1, single.device.high), (_PROBE_BATCH, probe.device.high), budget), 1)
    batch = min(batch, _MAX_BATCH)
    while batch > 1 and not _fits(predict(with_batch(batch)), budget):
        batch -= max(batch // 16, 1)
    return with_batch(batch)


def _fits(prediction: Prediction, budget: int) -> bool:
    return prediction.device.high <= budget


@dataclass(frozen=True)
class _Search:
    """Search of settings for one request.

    Attributes:
        requested: the requested settings.
        budget: bytes that must suffice.
        predict: returns the prediction for settings, cached.
        smallest: the smallest acceptable micro-batch.
    """

    requested: Settings
    budget: int
    predict: Predict
    smallest: int

    def first_fitting(self, allowed_changes: AllowedChanges) -> Settings | None:
        """Return the settings with the fewest changes whose smallest micro-batches fit."""
        for settings in allowed_changes.candidates(self.requested):
            if self._fits_smallest(settings):
                return settings
        smaller = allowed_changes.smaller_images(self.requested)
        first = bisect.bisect_left(smaller, True, key=self._fits_smallest)  # noqa: FBT003  the first that fits
        return smaller[first] if first < len(smaller) else None

    def largest_micro_batch(self, candidate: Settings) -> tuple[Settings, Prediction]:
        """Return the largest micro-batch that fits, for settings whose smallest one does."""
        whole, limit = self.predict(candidate), candidate.micro_batch or candidate.batch
        if _fits(whole, self.budget):
            return candidate, whole
        smallest = self.predict(replace(candidate, micro_batch=self.smallest))
        points = (self.smallest, smallest.device.high), (limit, whole.device.high)
        size = min(max(fitting_samples(*points, self.budget), 1), limit - 1)
        while size > self.smallest:
            # As even as possible: 10 samples in micro-batches of at most 4 become 4 + 3 + 3, so 4 is the size.
            even = -(-candidate.batch // -(-candidate.batch // size))
            settings = replace(candidate, micro_batch=even)
            prediction = self.predict(settings)
            if _fits(prediction, self.budget):
                return settings, prediction
            size = even - max(even // 16, 1)
        return replace(candidate, micro_batch=self.smallest), smallest

    def cannot_fit(self, allowed_changes: AllowedChanges) -> CannotFit:
        """Return the error: what the allowed changes would need, and which permission would help."""
        tried = [*allowed_changes.candidates(self.requested), *allowed_changes.smaller_images(self.requested)[-1:]]
        need = min(self._smallest_need(settings) for settings in tried)
        fix = "use a smaller network, or a larger budget"
        for more in self._helpful_permissions(allowed_changes):
            settings = self.first_fitting(more)
            if settings is not None:
                change = f"{settings.precision} at {settings.size}" if settings.size else settings.precision
                helped = format_size(self._smallest_need(settings))
                fix = f"--allow {','.join(more.allowed)} would make it fit ({change}, up to {helped}); or {fix}"
                break
        return CannotFit(
            f"micro-batches of {self.smallest} need up to {format_size(need)}, "
            f"and the budget is {format_size(self.budget)}",
            fix,
        )

    def _helpful_permissions(self, allowed_changes: AllowedChanges) -> Iterator[AllowedChanges]:
        """Yield the changes with more and more permissions; nothing if not even all of them would help."""
        with_more = list(allowed_changes.with_more())
        if not with_more:
            return
        *_, furthest = (*with_more[-1].candidates(self.requested), *with_more[-1].smaller_images(self.requested))
        if self._fits_smallest(furthest):
            yield from with_more

    def _smallest_need(self, settings: Settings) -> float:
        return self.predict(replace(settings, micro_batch=self.smallest)).device.high

    def _fits_smallest(self, settings: Settings) -> bool:
        return _fits(self.predict(replace(settings, micro_batch=self.smallest)), self.budget)
