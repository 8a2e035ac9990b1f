"""Memory of a queue of batches: how many may be made ahead within a budget. No framework."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import CannotFit
from ..units import format_size

_OUTSIDE_QUEUE = 2  # batches: one that waits for a free place, one that is used
_BATCHES_PER_WORKER = 2  # made ahead, so that a worker needn't wait for the others


@dataclass(frozen=True)
class QueueMemory:
    """Division of a budget. Sizes are in bytes.

    Attributes:
        queue: number of batches made ahead.
        batches: memory of all batches at once.
        decoding: memory that decoding may use at once.
    """

    queue: int
    batches: int
    decoding: int

    @property
    def total(self) -> int:
        """The most bytes in use at once."""
        return self.batches + self.decoding


def divide_budget(budget: int, batch_bytes: int, image_bytes: int, workers: int) -> QueueMemory:
    """Give batches at most half of a budget, if a queue of at least one batch fits there.

    Args:
        budget: bytes for batches and decoding.
        batch_bytes: bytes of a finished batch.
        image_bytes: bytes of the pixels of a batch while a worker makes it.
        workers: number of batches that are made at once.

    Raises:
        CannotFit: the smallest queue exceeds the budget.
    """

    def batches(queue: int) -> int:
        return (queue + _OUTSIDE_QUEUE) * batch_bytes + workers * image_bytes

    queue = _BATCHES_PER_WORKER * workers
    while queue > 1 and batches(queue) > budget // 2:
        queue -= 1
    if batches(queue) >= budget:
        raise CannotFit(
            f"the smallest queue needs {format_size(batches(queue))} for batches of {format_size(batch_bytes)}, and "
            f"the budget is {format_size(budget)}",
            "use smaller batches or images, or a larger budget",
        )
    return QueueMemory(queue, batches(queue), budget - batches(queue))
