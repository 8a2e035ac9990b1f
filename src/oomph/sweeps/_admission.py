"""Admission of cells beside others: their predicted needs, or budgets, must fit into the free memory together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..machine import GpuMemoryReader, read_machine
from ._queue import CellTask


@dataclass(frozen=True)
class FreeMemory:
    """The memory that was free before the first cell, in bytes; None if it is unknown."""

    host: int | None
    gpu: int | None

    def admits(self, running: Sequence[CellTask], task: CellTask) -> bool:
        """Return True if all these cells fit together; one without a prediction or a limit counts nothing."""
        needs = [other.need or other.request.limits for other in (*running, task)]
        sums = (sum(need.host or 0 for need in needs), sum(need.gpu or 0 for need in needs))
        return all(free is None or needed <= free for needed, free in zip(sums, (self.host, self.gpu), strict=True))


def read_free_memory() -> FreeMemory:
    """Read what is free now: of all limits on host memory the tightest, and of the GPUs the emptiest."""
    tightest = read_machine().budget.tightest
    reader = GpuMemoryReader()
    try:
        gpus = [gpu.free for gpu in reader.read()]
    finally:
        reader.close()
    return FreeMemory(None if tightest is None else tightest.available, max(gpus, default=None))
