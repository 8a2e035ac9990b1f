"""Which cells may run side by side: those whose budgets fit into the free memory together."""

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
        """Return True if the limits of all these cells fit together; a cell without a limit counts nothing."""
        limits = [other.request.limits for other in (*running, task)]
        sums = (sum(limit.host or 0 for limit in limits), sum(limit.gpu or 0 for limit in limits))
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
