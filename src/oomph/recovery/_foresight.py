"""What pieces will need, before they are tried."""

from __future__ import annotations

from collections.abc import Callable

from ..prediction import Prediction
from ._meter import Meter

Predict = Callable[[int], "int | Prediction"]


class Foresight:
    """Tells whether pieces will fit: by a predictor, asked each question once, or else by the measured peak.

    Args:
        predict: what a step needs with so many samples in a piece: bytes of the CUDA allocator (of the process, on the
            CPU), or a Prediction; None if nobody can tell.
        meter: knows how much there is, and was used.
        on_cpu: whether the whole process counts.
    """

    def __init__(self, predict: Predict | None, meter: Meter, *, on_cpu: bool) -> None:
        self._predict, self._meter, self._on_cpu = predict, meter, on_cpu
        self._needs: dict[int, int] = {}

    def fits(self, size: int, now: int) -> bool:
        """Whether pieces of so many samples fit, where they have so many now."""
        if self._predict is None:
            return self._meter.fits(size / max(1, now))
        if size not in self._needs:
            found = self._predict(size)
            if isinstance(found, Prediction):
                found = int(found.device.value if self._on_cpu else found.full_speed.value)
            self._needs[size] = found
        limit = self._meter.limit()
        return limit is None or self._needs[size] <= limit
