"""Predictions for the settings of a script, each captured once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..errors import UsageError
from ..machine import Target
from ..prediction import Prediction, predict_trace
from ..script import Capture, ScriptRun, TrainingLoop, capture_script
from ..settings import Settings
from ._predictor import first_micro_batches
from ._step_profile import StepProfile, step_profile

# Settings that `Plan.apply` applies to a model, its optimizers and the loss.
MODEL_SETTINGS = ("precision", "memory_format", "checkpointing", "optimizer", "loss_chunks", "offload")


def changes_model(before: Settings, after: Settings) -> bool:
    """Return True if settings differ in what belongs to the model, its optimizers or the loss."""
    return any(getattr(before, name) != getattr(after, name) for name in MODEL_SETTINGS)


def loop_settings(loop: TrainingLoop) -> Settings:
    """Return the settings of a script's own loop; it runs with torch's default allocator."""
    settings = replace(loop.settings, allocator="default")
    return replace(settings, micro_batch=None) if loop.micro_batches == 1 else settings


@dataclass
class ScriptPredictor:
    """Predicts settings of a script on a target. Settings that differ only in the allocator share a capture.

    Attributes:
        run: the script with its own settings.
        target: where it runs.
        max_seconds: time limit of each capture.
        progress: called with the number of captures so far; each takes seconds.
    """

    run: ScriptRun
    target: Target
    max_seconds: float
    progress: Callable[[int], object] | None = None
    captures: dict[ScriptRun, Capture | UsageError] = field(default_factory=dict)
    predictions: dict[Settings, Prediction] = field(default_factory=dict)
    profiles: dict[Settings, StepProfile] = field(default_factory=dict)

    @property
    def loop(self) -> TrainingLoop:
        """The script's own training loop.

        Raises:
            UsageError: the script gave no training step.
        """
        return self._capture(self.run).loop

    def predict(self, settings: Settings) -> Prediction:
        """Return the prediction for settings; of many micro-batches, two are traced: more change nothing.

        Raises:
            UsageError: the script can't run with them.
        """
        short = first_micro_batches(settings)
        if short not in self.predictions:
            trace = self._capture(self._run_with(settings)).trace
            self.predictions[short] = predict_trace(trace, short, self.target)
        return self.predictions[short]

    def profile(self, settings: Settings) -> StepProfile:
        """Return the profile of one step of the whole batch, with nothing recomputed or offloaded.

        A script that accumulates gradients is profiled by its first pass.

        Raises:
            UsageError: the script can't run with the settings.
        """
        script_settings = loop_settings(self.loop)
        plain = replace(
            settings,
            batch=script_settings.batch,
            micro_batch=script_settings.micro_batch,
            checkpointing="none",
            offload=(),
        )
        if plain not in self.profiles:
            capture = self._capture(self._run_with(plain))
            one_pass = replace(plain, batch=max(plain.micro_batch_sizes), micro_batch=None)
            profile = step_profile(capture.first_pass, one_pass, self.target)
            passes = self.loop.micro_batches
            self.profiles[plain] = profile if passes == 1 else profile.with_update(capture.trace).repeated(passes)
        return self.profiles[plain]

    def _run_with(self, settings: Settings) -> ScriptRun:
        loop, script_settings = self.loop, loop_settings(self.loop)
        if settings.optimizer == "8bit":
            raise UsageError("8-bit states of a script's optimizer can't be predicted", "plan a Job for them")
        if settings.precision == "amp-fp16" != script_settings.precision:
            raise UsageError("amp-fp16 needs a gradient scaler, which a plan can't add to a script", "add one to it")
        micro_batch = max(settings.micro_batch_sizes)
        is_split = len(settings.micro_batch_sizes) > 1
        only_model = replace(settings, batch=1, micro_batch=None, allocator=script_settings.allocator)
        return replace(
            self.run,
            batch=self.run.batch if micro_batch == (loop.samples or 1) else micro_batch,
            settings=only_model if changes_model(script_settings, settings) else None,
            accumulates=is_split and loop.micro_batches == 1,
        )

    def _capture(self, run: ScriptRun) -> Capture:
        if run not in self.captures:
            try:
                self.captures[run] = capture_script(run, self.max_seconds)
            except UsageError as error:  # a search may ask for it again
                self.captures[run] = error
            if self.progress is not None:
                self.progress(len(self.captures))
        capture = self.captures[run]
        if isinstance(capture, UsageError):
            raise capture
        return capture
