from __future__ import annotations

import numpy as np
import pytest
import torch

from oomph.data import profile_dataset, worst_batch
from oomph.errors import UsageError


def test_the_largest_samples_are_collated() -> None:
    images = [(np.full((side, side), side, np.float32), side) for side in (4, 8, 4, 8, 2)]
    batch, samples = worst_batch(images, profile_dataset(images, 2))
    assert samples == 2
    assert batch[0].shape == (2, 8, 8)
    assert batch[1].tolist() == [8, 8]


def test_a_dataset_smaller_than_the_batch() -> None:
    batch, samples = worst_batch([torch.zeros(3)] * 2, profile_dataset([torch.zeros(3)] * 2, 16))
    assert (samples, batch.shape) == (2, (2, 3))


def test_samples_that_torch_cannot_collate() -> None:
    ragged = [torch.zeros(3), torch.zeros(4)]
    with pytest.raises(UsageError, match="pass your collate_fn"):
        worst_batch(ragged, profile_dataset(ragged, 2))
    assert worst_batch(ragged, profile_dataset(ragged, 2), list)[1] == 2
