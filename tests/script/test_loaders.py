from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from oomph.errors import UsageError
from oomph.script._loaders import TrainingLoaders


class Passes:
    """Counts the backward passes and optimizer steps of a pretended training."""

    backward_passes = 0
    optimizer_steps = 0

    def start_batch(self) -> None:
        """Do nothing."""


@pytest.fixture
def passes() -> Passes:
    return Passes()


def numbers(count: int = 10) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def sizes(loader: DataLoader[Any], passes: Passes, batches: int) -> list[int]:
    """Train on a few batches."""
    result = []
    for index, (batch,) in enumerate(loader):
        result.append(len(batch))
        passes.backward_passes += 1
        if index + 1 == batches:
            break
    return result


def test_batches_have_the_requested_size_and_do_not_end_while_the_script_trains(passes: Passes) -> None:
    loaders = TrainingLoaders(4, passes)
    with loaders.installed():
        assert sizes(DataLoader(numbers(), batch_size=2, num_workers=3), passes, 5) == [4] * 5
    assert (loaders.samples, loaders.batches) == (4, 5)


def test_epoch_ends_for_an_optimizer_that_waits_for_it(passes: Passes) -> None:
    with TrainingLoaders(4, passes).installed():
        for (batch,) in DataLoader(numbers(), batch_size=2):
            assert len(batch) == 4
            passes.backward_passes += 1
    assert passes.backward_passes == 64


def test_epoch_with_optimizer_steps_does_not_end(passes: Passes) -> None:
    with TrainingLoaders(4, passes).installed():
        loader = DataLoader(numbers(), batch_size=2)
        passes.optimizer_steps = 3
        for index, _ in enumerate(loader):
            passes.backward_passes += 1
            passes.optimizer_steps += index == 0
            if index == 200:
                break
    assert passes.backward_passes == 201


def test_own_batches_stay_as_they_are(passes: Passes) -> None:
    loaders = TrainingLoaders(None, passes)
    with loaders.installed():
        assert sizes(DataLoader(numbers(), batch_size=4), passes, 4) == [4, 4, 2, 4]
    assert loaders.samples == 4


def test_short_dataset_is_repeated(passes: Passes) -> None:
    with TrainingLoaders(64, passes).installed():
        assert sizes(DataLoader(numbers(3), batch_size=2, drop_last=True), passes, 2) == [64, 64]


def test_second_loader_keeps_its_proportion(passes: Passes) -> None:
    with TrainingLoaders(8, passes).installed():
        labeled, unlabeled = DataLoader(numbers(), batch_size=2), DataLoader(numbers(), batch_size=6)
        pairs = [(len(a), len(b)) for (a,), (b,) in zip(labeled, unlabeled, strict=False)]
    assert set(pairs) == {(8, 24)}


def test_data_that_is_only_read_ends(passes: Passes) -> None:
    with TrainingLoaders(4, passes).installed():
        assert [len(batch) for (batch,) in DataLoader(numbers(), batch_size=2)] == [4, 4]


def test_validation_keeps_its_batches(passes: Passes) -> None:
    loaders = TrainingLoaders(4, passes)
    with loaders.installed(), torch.no_grad():
        assert [len(batch) for (batch,) in DataLoader(numbers(), batch_size=3)] == [3, 3, 3, 1]
    assert loaders.samples is None


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.arange(20)


def test_streamed_samples_are_regrouped(passes: Passes) -> None:
    with TrainingLoaders(5, passes).installed():
        batches = iter(DataLoader(Stream(), batch_size=2))
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_loader_of_whole_batches_is_refused(passes: Passes) -> None:
    loader: DataLoader[Any] = DataLoader(numbers(), batch_size=None)
    with TrainingLoaders(4, passes).installed(), pytest.raises(UsageError, match="has no batch size"):
        next(iter(loader))


def test_loaders_are_restored(passes: Passes) -> None:
    before = DataLoader.__init__, DataLoader.__iter__
    with TrainingLoaders(4, passes).installed():
        pass
    assert (DataLoader.__init__, DataLoader.__iter__) == before
