"""What was measured beside what was predicted, remembered for this machine, and put into the next prediction."""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from .. import document
from ..errors import InvalidFile, MissingFile
from ..files import write_atomically
from ._prediction import Estimate, Origin, Prediction

_KEPT = 50  # comparisons that are remembered


@dataclass(frozen=True)
class Comparison:
    """One prediction and what was measured, as measured over predicted.

    Attributes:
        device: the GPU's name as its driver says it, or "cpu".
        software: the versions it ran with.
        allocated: ratio of `allocated`.
        reserved: ratio of `reserved`.
        seconds: ratio of the time of a step.
        outside: bytes of the device outside of the allocator.
    """

    device: str
    software: str
    allocated: float
    reserved: float
    seconds: float
    outside: int


@dataclass(frozen=True)
class Calibration:
    """Every comparison that is remembered, the oldest first."""

    comparisons: tuple[Comparison, ...] = ()

    def of(self, device: str, software: str) -> tuple[Comparison, ...]:
        """Those made on that device with that software."""
        return tuple(one for one in self.comparisons if (one.device, one.software) == (device, software))

    def devices(self) -> tuple[tuple[str, str], ...]:
        """The devices and software that were measured, the latest first."""
        return tuple(dict.fromkeys((one.device, one.software) for one in reversed(self.comparisons)))


def calibration_file() -> Path:
    """Where comparisons are remembered: the user's own folder for configuration."""
    if sys.platform == "win32":
        home = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return home / "oomph" / "calibration.json"


def load_calibration(path: Path | None = None) -> Calibration:
    """What is remembered; nothing where there is no such file or it can't be read as one."""
    try:
        return document.read("calibration", 1, Calibration, document.load(path or calibration_file()))
    except (MissingFile, InvalidFile, OSError):
        return Calibration()


def remember(comparison: Comparison, path: Path | None = None) -> None:
    """Add a comparison; the file is replaced as a whole, so that it is never half written."""
    file = path or calibration_file()
    kept = (*load_calibration(file).comparisons, comparison)[-_KEPT:]
    text = document.dumps(document.write("calibration", 1, Calibration(kept))).encode()
    write_atomically(file, lambda opened: opened.write(text), fsync=False)


def calibrated(made: Prediction, comparisons: tuple[Comparison, ...]) -> Prediction:
    """A prediction corrected by how far earlier ones on that device were off, at the median."""
    if not comparisons:
        return made
    memory = statistics.median(one.allocated for one in comparisons)
    time = statistics.median(one.seconds for one in comparisons)
    words = f"corrected by {len(comparisons)} measured run{'s' * (len(comparisons) > 1)} on this machine"
    return replace(
        made.with_memory(lambda figure: _scaled(figure, memory)),
        device=_on_device(made, memory, comparisons),
        seconds=_scaled(made.seconds, time),
        assumptions=(*made.assumptions, words),
    )


def _on_device(made: Prediction, ratio: float, comparisons: tuple[Comparison, ...]) -> Estimate:
    """What nvidia-smi will show: what is comfortable, and what was seen outside of the allocator."""
    outside = statistics.median(one.outside for one in comparisons)
    if not outside:
        return _scaled(made.device, ratio)
    value = made.full_speed.value * ratio + outside
    return Estimate(min(value, made.device.low), value, max(value, made.device.high), Origin.MEASURED)


def _scaled(figure: Estimate, ratio: float) -> Estimate:
    low, value, high = (bound * ratio for bound in (figure.low, figure.value, figure.high))
    # What was predicted before stays inside of the range: one measured run is no proof for another.
    return Estimate(min(low, figure.low), value, max(high, figure.high), Origin.MEASURED)
