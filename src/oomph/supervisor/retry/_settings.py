"""The settings of a training command that a retry makes smaller."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BatchSettings:
    """The memory-related settings of a command.

    Attributes:
        batch: Batch size, as the command's flag has it.
        accumulate: Number of batches whose gradients are accumulated; None if the program decides that itself.
        workers: Number of loader workers; None if there is no flag for them.
        multiple: The batch size stays a multiple of this: the number of ranks that share it.
    """

    batch: int
    accumulate: int | None = 1
    workers: int | None = None
    multiple: int = 1

    def with_smaller_batch(self) -> BatchSettings | None:
        """Return settings with half the batch or less and the same effective batch; None if it can't be smaller."""
        sizes = range(self.batch // 2, 0, -1)
        if self.accumulate is None:
            batch = next((size for size in sizes if size % self.multiple == 0), None)
            return None if batch is None else replace(self, batch=batch)
        total = self.batch * self.accumulate
        batch = next((size for size in sizes if size % self.multiple == 0 and total % size == 0), None)
        return None if batch is None else replace(self, batch=batch, accumulate=total // batch)

    def with_fewer_workers(self) -> BatchSettings | None:
        """Return settings with half the loader workers; None if there are none."""
        return replace(self, workers=self.workers // 2) if self.workers else None

    def describe(self, before: BatchSettings) -> str:
        """Return what differs from other settings, as text."""
        changes = [
            f"{name} {new} (was {old})"
            for name, new, old in (
                ("batch", self.batch, before.batch),
                ("accumulation", self.accumulate, before.accumulate),
                ("workers", self.workers, before.workers),
            )
            if new != old
        ]
        return ", ".join(changes)
