"""Linear estimates of the micro-batch that fits into a budget."""

from __future__ import annotations

from dataclasses import dataclass

from ..prediction import Prediction
from ..settings import Settings

_PER_SAMPLE_KINDS = {"saved activation", "temporary", "input"}


@dataclass(frozen=True)
class MicroBatchEstimate:
    """An estimated micro-batch: its samples (0 if not even one fits) and the upper bound of its need in bytes."""

    samples: int
    device_bytes: float


def estimate_micro_batch(prediction: Prediction, settings: Settings, budget: int) -> MicroBatchEstimate | None:
    """Estimate the largest micro-batch that fits into the budget from one prediction, without predicting again.

    Returns None if the peak does not depend on the micro-batch: it is in the optimizer's update.
    """
    per_batch = sum(size for kind, size in prediction.peak.kinds if kind in _PER_SAMPLE_KINDS)
    if prediction.peak.phase not in {"forward", "backward"} or not per_batch:
        return None
    micro_batch = settings.micro_batch or settings.batch
    device = prediction.device
    margin = device.high / device.value  # of the whole need: that of a small micro-batch is small, too
    fixed = (device.value - per_batch) * margin
    samples = max(fitting_samples((0, fixed), (micro_batch, device.high), budget), 0)
    return MicroBatchEstimate(samples, fixed + per_batch * margin / micro_batch * samples)


def fitting_samples(small: tuple[int, float], large: tuple[int, float], budget: int) -> int:
    """Return the number of samples at which a line through two (samples, bytes) points reaches the budget.

    The result is 0 or less if the budget is below the memory of one sample.
    """
    (few, low), (many, high) = small, large
    bytes_per_sample = max((high - low) / max(many - few, 1), 1.0)
    return int(few + (budget - low) / bytes_per_sample)
