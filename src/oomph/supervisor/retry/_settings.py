"""The settings of a training command that a retry makes smaller."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BatchSettings:
    """The memory-related settings of a command.

    Attributes:
        batch: Batch size, as the command's flag has it.
        accumulate: Number of batches whose gradients are accumulated; None if there is no flag for it.
        workers: Number of loader workers; None if there is no flag for them.
        multiple: The batch size stays a multiple of this: the number of ranks that share it.
        nominal: The batch that the program accumulates to by itself, as YOLO does; None if it doesn't.
    """

    batch: int
    accumulate: int | None = 1
    workers: int | None = None
    multiple: int = 1
    nominal: int | None = None

    @property
    def effective_batch(self) -> int | None:
        """The number of samples of an update, or of a rank's part of it; None if it isn't known."""
        if self.nominal is not None:
            return self.batch * max(round(self.nominal / self.batch), 1)
        return None if self.accumulate is None else self.batch * self.accumulate

    def with_smaller_batch(self) -> BatchSettings | None:
        """Return settings with half the batch or less, and the same effective batch if possible; None at the smallest.

        Without a flag for accumulation it is half the batch, unless another one of at least a quarter keeps the
        effective batch.
        """
        sizes = [size for size in range(self.batch // 2, 0, -1) if size % self.multiple == 0]
        smaller = [self._with_batch(size) for size in sizes]
        near = [each for each in smaller if self.accumulate is not None or each.batch * 4 >= self.batch]
        exact = next((each for each in near if each.effective_batch == self.effective_batch), None)
        return exact or (smaller[0] if smaller and self.accumulate is None else None)

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
                ("effective batch", self.effective_batch, before.effective_batch),
                ("workers", self.workers, before.workers),
            )
            if new != old
        ]
        return ", ".join(changes)

    def _with_batch(self, batch: int) -> BatchSettings:
        if self.accumulate is None:
            return replace(self, batch=batch)
        return replace(self, batch=batch, accumulate=max(self.batch * self.accumulate // batch, 1))
