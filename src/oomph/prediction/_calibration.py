"""Calibration: comparisons of measured with predicted runs, stored per user, that correct later predictions."""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from .. import document
from ..errors import InvalidFile, MissingFile
from ..files import write_atomically
from ..units import count_of
from ._prediction import Estimate, Origin, Prediction

_MAX_COMPARISONS = 50


@dataclass(frozen=True)
class Comparison:
    """One measured run, as ratios of measured to predicted values.

    Attributes:
        device: the GPU's name as its driver reports it, or "cpu".
        software: the versions of torch, CUDA and cuDNN.
        allocated: ratio of `allocated`.
        reserved: ratio of `reserved`.
        seconds: ratio of the step time.
        outside: bytes of the device outside the allocator.
    """

    device: str
    software: str
    allocated: float
    reserved: float
    seconds: float
    outside: int


@dataclass(frozen=True)
class Calibration:
    """All stored comparisons, oldest first."""

    comparisons: tuple[Comparison, ...] = ()

    def select(self, device: str, software: str) -> tuple[Comparison, ...]:
        """Return the comparisons of this device with this software."""
        return tuple(item for item in self.comparisons if (item.device, item.software) == (device, software))

    def environments(self) -> tuple[tuple[str, str], ...]:
        """Return the measured (device, software) pairs, latest first."""
        return tuple(dict.fromkeys((item.device, item.software) for item in reversed(self.comparisons)))


def calibration_file() -> Path:
    """Return the path of the stored comparisons in the user's configuration folder."""
    if sys.platform == "win32":
        home = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return home / "oomph" / "calibration.json"


def load_calibration(path: Path | None = None) -> Calibration:
    """Return the stored comparisons; none if the file is missing or unreadable."""
    try:
        return document.read("calibration", 1, Calibration, document.load(path or calibration_file()))
    except (MissingFile, InvalidFile, OSError):
        return Calibration()


def save_comparison(comparison: Comparison, path: Path | None = None) -> None:
    """Add a comparison to the stored ones and drop the oldest beyond the limit."""
    file = path or calibration_file()
    comparisons = (*load_calibration(file).comparisons, comparison)[-_MAX_COMPARISONS:]
    text = document.dumps(document.write("calibration", 1, Calibration(comparisons))).encode()
    write_atomically(file, lambda opened: opened.write(text), fsync=False)


def calibrate(prediction: Prediction, comparisons: tuple[Comparison, ...]) -> Prediction:
    """Return a prediction corrected by the median error of earlier ones for that device."""
    if not comparisons:
        return prediction
    memory_ratio = statistics.median(comparison.allocated for comparison in comparisons)
    time_ratio = statistics.median(comparison.seconds for comparison in comparisons)
    assumption = f"this run differs from its prediction as {count_of(len(comparisons), 'measured run')} here did"
    return replace(
        prediction.with_memory(lambda estimate: _scale(estimate, memory_ratio)),
        device=_calibrate_device(prediction, memory_ratio, comparisons),
        seconds=_scale(prediction.seconds, time_ratio),
        assumptions=(*prediction.assumptions, assumption),
    )


def _calibrate_device(prediction: Prediction, ratio: float, comparisons: tuple[Comparison, ...]) -> Estimate:
    """Return `full_speed` plus the measured memory outside the allocator."""
    outside = statistics.median(comparison.outside for comparison in comparisons)
    if not outside:
        return _scale(prediction.device, ratio)
    value = prediction.full_speed.value * ratio + outside
    return Estimate(min(value, prediction.device.low), value, max(value, prediction.device.high), Origin.MEASURED)


def _scale(estimate: Estimate, ratio: float) -> Estimate:
    low, value, high = (bound * ratio for bound in (estimate.low, estimate.value, estimate.high))
    # The range only grows: one measured run proves nothing about another.
    return Estimate(min(low, estimate.low), value, max(high, estimate.high), Origin.MEASURED)
