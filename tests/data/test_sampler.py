from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from oomph.data import Shard, ShuffledSampler
from oomph.errors import UsageError


def epoch_samples(sampler: ShuffledSampler, number: int = 0) -> list[int]:
    return [index for batch in sampler.epoch(number) for index in batch.indices.tolist()]


def test_every_sample_once_per_epoch_in_a_new_order() -> None:
    sampler = ShuffledSampler(np.arange(17), 4, (32, 32), shuffle=True, seed=3)
    first, second = epoch_samples(sampler, 0), epoch_samples(sampler, 1)
    assert sorted(first) == sorted(second) == list(range(17))
    assert first != second
    assert epoch_samples(sampler, 0) == first
    assert epoch_samples(ShuffledSampler(np.arange(17), 4, (32, 32), shuffle=True, seed=4)) != first
    assert [len(batch.indices) for batch in sampler.epoch(0)] == [4, 4, 4, 4, 1]


def test_ranks_get_equally_many_samples() -> None:
    samplers = [ShuffledSampler(np.arange(11), 2, (32, 32), shuffle=True, shard=Shard(rank, 3)) for rank in range(3)]
    parts = [epoch_samples(sampler) for sampler in samplers]
    assert [len(part) for part in parts] == [4, 4, 4]
    assert set().union(*parts) == set(range(11))


def test_ranks_drop_the_last_incomplete_batch() -> None:
    samplers = [ShuffledSampler(np.arange(11), 2, (32, 32), shard=Shard(rank, 3, drop_last=True)) for rank in range(3)]
    assert [len(epoch_samples(sampler)) for sampler in samplers] == [2, 2, 2]


def test_no_sample_is_repeated_if_ranks_need_not_be_even() -> None:
    samplers = [ShuffledSampler(np.arange(11), 2, (32, 32), shard=Shard(rank, 3), even=False) for rank in range(3)]
    assert sorted(chain.from_iterable(map(epoch_samples, samplers))) == list(range(11))


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(UsageError, match="batch=0"):
        ShuffledSampler(np.arange(4), 0, (32, 32))
    with pytest.raises(UsageError, match="rank 3"):
        ShuffledSampler(np.arange(4), 1, (32, 32), shard=Shard(3, 3))
    with pytest.raises(UsageError, match="32×0"):
        ShuffledSampler(np.arange(4), 1, (32, 0))
