"""Which samples make which batch: from a seed, whatever the number of threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError


class BatchSpec(NamedTuple):
    """A batch before it is made: its samples, and the size of its canvas."""

    indices: NDArray[np.int64]
    width: int
    height: int


class BatchSampler(Protocol):
    """The batches of every epoch. An epoch's order depends on nothing but its number."""

    @property
    def largest(self) -> BatchSpec:
        """A batch as large as any: what memory is prepared for."""
        ...

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        """The batches of an epoch; may compute them when they are asked for."""
        ...


@dataclass(frozen=True)
class Shard:
    """Which part of the samples a loader takes.

    Attributes:
        rank: which of several processes this one is.
        ranks: how many share the samples.
        drop_last: leave out a last batch that isn't full.
    """

    rank: int = 0
    world_size: int = 1
    drop_last: bool = False


@dataclass(frozen=True, eq=False)
class ShuffledSampler:
    """The usual order: all samples once an epoch, shuffled or not, dealt out to ranks.

    Attributes:
        samples: the indices to choose from.
        batch: samples of a batch.
        canvas: width and height.
        shuffle: a new order every epoch; as they stand otherwise.
        seed: what the order is drawn from.
        rank: which share of the samples this process takes.
        ranks: shares there are.
        drop_last: leave out a last batch that isn't full.
        even: give every rank as many samples, repeating some; without, the last ranks may have one less.
    """

    samples: NDArray[np.int64]
    batch: int
    canvas: tuple[int, int]
    shuffle: bool = False
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    drop_last: bool = False
    even: bool = True

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise UsageError(f"a batch of {self.batch} samples can't be made", "ask for 1 or more")
        if not 0 <= self.rank < self.world_size:
            raise UsageError(f"there is no rank {self.rank} of {self.world_size}", "ranks count from 0")
        if min(self.canvas) < 1:
            raise UsageError(f"a canvas of {self.canvas[0]}×{self.canvas[1]} has no pixels", "ask for a size above 0")

    @property
    def largest(self) -> BatchSpec:
        """Every batch but the last is full."""
        return BatchSpec(np.zeros(min(self.batch, max(self._share, 1)), np.int64), *self.canvas)

    @property
    def _share(self) -> int:
        """Samples of this rank in an epoch."""
        whole = len(self.samples)
        if self.drop_last:
            return whole // self.world_size
        if self.even:
            return -(-whole // self.world_size)
        return len(range(self.rank, whole, self.world_size))

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        """The batches of an epoch."""
        samples = self.samples
        if self.shuffle:
            samples = np.random.default_rng([self.seed, number]).permutation(samples)
        own = samples[self.rank :: self.world_size][: self._share]
        if len(own) < self._share:  # ranks go on from the start so that all have as many
            extra = np.resize(samples, self.world_size * self._share)
            own = extra[self.rank :: self.world_size]
        return _Dealt(own, self)


class _Dealt(Sequence[BatchSpec]):
    """Samples cut into batches as they are asked for."""

    def __init__(self, samples: NDArray[np.int64], order: ShuffledSampler) -> None:
        self._samples, self._order = samples, order

    def __len__(self) -> int:
        count, batch = len(self._samples), self._order.batch
        return count // batch if self._order.drop_last else -(-count // batch)

    def __getitem__(self, number: int | slice) -> BatchSpec:  # type: ignore[override]
        if isinstance(number, slice):
            raise TypeError("batches are asked for one by one")
        if not 0 <= number < len(self):
            raise IndexError(number)
        start = number * self._order.batch
        return BatchSpec(self._samples[start : start + self._order.batch], *self._order.canvas)


def following(plan: Sequence[BatchSpec], batch: int, row: int) -> Iterator[int]:
    """The sample at a place of an epoch and those behind it, going round at its end for ever."""
    while True:
        yield from plan[batch].indices[row:].tolist()
        batch, row = (batch + 1) % len(plan), 0
