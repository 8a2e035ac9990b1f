"""Samplers: the samples of every batch, determined by seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError


class BatchSpec(NamedTuple):
    """The samples of a batch, and the width and height of its canvas."""

    indices: NDArray[np.int64]
    width: int
    height: int


class BatchSampler(Protocol):
    """Determines the batches of every epoch; the same epoch number must give the same batches."""

    @property
    def largest(self) -> BatchSpec:
        """A batch as large as any other, for which buffers are allocated."""

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        """Return the batches of an epoch. The sequence may compute them lazily."""


@dataclass(frozen=True)
class Shard:
    """The part of the samples that one of several processes loads.

    Attributes:
        rank: number of this process.
        world_size: number of processes.
        drop_last: leave out a last batch that isn't full.
    """

    rank: int = 0
    world_size: int = 1
    drop_last: bool = False


_WHOLE = Shard()


@dataclass(frozen=True, eq=False)
class ShuffledSampler:
    """The default sampler: every sample once per epoch, shuffled or in order, divided among ranks.

    Attributes:
        samples: the samples to choose from.
        batch: samples per batch.
        canvas: width and height.
        shuffle: use a new order every epoch.
        seed: seed of the order.
        shard: the part of the samples that this process loads.
        even: give every rank the same number of samples by repeating some. Without it, the last ranks may get one
            sample less.
    """

    samples: NDArray[np.int64]
    batch: int
    canvas: tuple[int, int]
    shuffle: bool = False
    seed: int = 0
    shard: Shard = _WHOLE
    even: bool = True

    def __post_init__(self) -> None:
        rank, world_size = self.shard.rank, self.shard.world_size
        if self.batch < 1:
            raise UsageError(f"batch={self.batch} is too small", "use 1 or more samples per batch")
        if not 0 <= rank < world_size:
            raise UsageError(f"rank {rank} does not exist for world_size={world_size}", "count ranks from 0")
        if min(self.canvas) < 1:
            raise UsageError(f"a canvas of {self.canvas[0]}×{self.canvas[1]} has no pixels", "use a size of 1 or more")

    @property
    def largest(self) -> BatchSpec:
        """A full batch; only the last batch may be smaller."""
        return BatchSpec(np.zeros(min(self.batch, max(self._count, 1)), np.int64), *self.canvas)

    @property
    def _count(self) -> int:
        """Samples of this rank in an epoch."""
        total, shard = len(self.samples), self.shard
        if shard.drop_last:
            return total // shard.world_size
        if self.even:
            return -(-total // shard.world_size)
        return len(range(shard.rank, total, shard.world_size))

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        """Return the batches of an epoch."""
        samples, rank, world_size = self.samples, self.shard.rank, self.shard.world_size
        if self.shuffle:
            samples = np.random.default_rng([self.seed, number]).permutation(samples)
        selected = samples[rank::world_size][: self._count]
        if len(selected) < self._count:  # repeat samples from the start
            selected = np.resize(samples, world_size * self._count)[rank::world_size]
        return _Batches(selected, self)


class _Batches(Sequence[BatchSpec]):
    """Samples divided into batches on access: a list for millions of samples would be large."""

    def __init__(self, samples: NDArray[np.int64], sampler: ShuffledSampler) -> None:
        self._samples, self._sampler = samples, sampler

    def __len__(self) -> int:
        count, batch = len(self._samples), self._sampler.batch
        return count // batch if self._sampler.shard.drop_last else -(-count // batch)

    def __getitem__(self, number: int | slice) -> BatchSpec:  # type: ignore[override]
        if isinstance(number, slice):
            raise TypeError("batches can't be sliced")
        if not 0 <= number < len(self):
            raise IndexError(number)
        start = number * self._sampler.batch
        return BatchSpec(self._samples[start : start + self._sampler.batch], *self._sampler.canvas)


def samples_from(batches: Sequence[BatchSpec], batch: int, row: int) -> Iterator[int]:
    """Yield the samples of an epoch from a row of a batch on, starting over at the end, without a limit."""
    while True:
        yield from batches[batch].indices[row:].tolist()
        batch, row = (batch + 1) % len(batches), 0
