"""Predictions for a search, each made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..job import Job
from ..machine import Target
from ..prediction import Prediction, predict, trace_device
from ..settings import Settings
from ..trace import trace_profile
from ._step_profile import StepProfile, step_profile


class Predictor(Protocol):
    """Predicts settings of a Job on a target."""

    def predict(self, settings: Settings) -> Prediction:
        """Return the prediction for settings."""

    def profile(self, settings: Settings) -> StepProfile:
        """Return the profile of one step of the whole batch, with nothing recomputed or offloaded."""


@dataclass
class JobPredictor:
    """Predicts settings of a Job on a target, each once.

    Attributes:
        job: the Job.
        target: where it runs.
        progress: called with the number of traces so far; each takes a second or more.
    """

    job: Job
    target: Target
    progress: Callable[[int], object] | None = None
    predictions: dict[Settings, Prediction] = field(default_factory=dict)
    profiles: dict[Settings, StepProfile] = field(default_factory=dict)

    def predict(self, settings: Settings) -> Prediction:
        """Return the prediction for settings; of many micro-batches, two are traced: more change nothing."""
        short = first_micro_batches(settings)
        if short not in self.predictions:
            self.predictions[short] = predict(self.job, short, self.target)
            self._report()
        return self.predictions[short]

    def profile(self, settings: Settings) -> StepProfile:
        """Return the profile of one step of the whole batch, with nothing recomputed or offloaded."""
        whole = replace(settings, micro_batch=None, checkpointing="none", offload=())
        if whole not in self.profiles:
            trace = trace_profile(self.job, whole, trace_device(self.target))
            self.profiles[whole] = step_profile(trace, whole, self.target)
            self._report()
        return self.profiles[whole]

    def _report(self) -> None:
        if self.progress is not None:
            self.progress(len(self.predictions) + len(self.profiles))


def first_micro_batches(settings: Settings) -> Settings:
    """Return settings whose batch is the first two micro-batches."""
    micro_batch = settings.micro_batch or settings.batch
    batch = min(settings.batch, 2 * micro_batch)
    return replace(settings, batch=batch, micro_batch=micro_batch if micro_batch < batch else None)
