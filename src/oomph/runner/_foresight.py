"""What pieces will need, before they are tried."""

from __future__ import annotations

from collections.abc import Callable

from ..ledger import Prediction
from ._meter import Meter

Predict = Callable[[int], "int | Prediction"]


class Foresight:
    """Asks a predictor, each question once.

    Args:
        predict: what a step needs with so many samples in a piece: bytes of the CUDA allocator (of the process, on the
            CPU), or a Prediction.
        meter: knows how much there is.
        on_cpu: whether the whole process counts.
    """

    def __init__(self, predict: Predict, meter: Meter, *, on_cpu: bool) -> None:
        self._predict, self._meter, self._on_cpu = predict, meter, on_cpu
        self._needs: dict[int, int] = {}

    def fits(self, size: int) -> bool:
        """Whether pieces of so many samples fit."""
        if size not in self._needs:
            self._needs[size] = self._ask(size)
        limit = self._meter.limit()
        return limit is None or self._needs[size] <= limit

    def _ask(self, size: int) -> int:
        found = self._predict(size)
        if isinstance(found, Prediction):
            return int(found.device.value if self._on_cpu else found.comfortable.value)
        return found
