from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from oomph.data import HostResources, LoaderWorkload, plan_workers, profile_dataset, sample_bytes
from oomph.errors import CannotFit, UsageError
from oomph.units import GIB, MIB

RESOURCES = HostResources(memory=8 * GIB, limited_by="RAM", shm=4 * GIB, cores=6, gpu=True)


class Tokens(torch.utils.data.Dataset[torch.Tensor]):
    """Sequences of 1 to 50 tokens."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(index % 50 + 1, dtype=torch.int64)


def test_worst_batch_of_a_map_style_dataset() -> None:
    profile = profile_dataset(Tokens(100), 4)
    assert (profile.sample_bytes, profile.batch_bytes, profile.exact) == (50 * 8, 4 * 50 * 8, True)
    assert {number % 50 for number in profile.worst_batch} <= {48, 49}
    assert profile.memory.batches == profile.batch_bytes


def test_worst_bucket_need_not_have_the_longest_sample() -> None:
    buckets = [[49], [9] * 8, [29, 30, 31]]
    profile = profile_dataset(Tokens(50), buckets, size_of=lambda index: (index + 1) * 8)
    assert profile.worst_batch == (29, 30, 31)
    assert profile.batch_bytes == 3 * 32 * 8


def test_slow_dataset_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert profile_dataset(Tokens(5000), 2).exact
    monkeypatch.setattr("oomph.data._profile._MEASURING_SECONDS", 0.0)
    profile = profile_dataset(Tokens(5000), 2)
    assert not profile.exact
    assert profile.sample_bytes > 40 * 8


def test_iterable_dataset() -> None:
    profile = profile_dataset(iter([np.zeros(10, np.uint8), np.zeros(70, np.uint8)]), 3)
    assert (profile.sample_bytes, profile.batch_bytes, profile.worst_batch, profile.exact) == (70, 210, (), True)
    with pytest.raises(UsageError, match="empty"):
        profile_dataset(iter(()), 1)


def test_sample_bytes_of_nested_samples() -> None:
    image = Image.new("RGB", (10, 10))
    sample = {"a": [torch.zeros(3), np.zeros(2, np.uint8)], "b": (b"xyz", 1.5), "c": image}
    assert sample_bytes(sample) == 12 + 2 + 3 + 8 + 300


def test_plan_has_as_many_workers_as_fit_the_memory() -> None:
    plan = plan_workers(profile_dataset(Tokens(100), 4), RESOURCES)
    assert plan.dataloader_kwargs == {"num_workers": 6, "prefetch_factor": 2, "pin_memory": True}
    spawned = profile_dataset(Tokens(100), 4, workload=LoaderWorkload(1, 1, 0, start_method="spawn"))
    reduced = plan_workers(spawned, dataclasses.replace(RESOURCES, memory=500 * MIB))
    assert reduced.workers == 3  # 145 MiB each
    assert reduced.memory.total <= 500 * MIB
    assert "loading with 4 workers needs 5" in reduced.why
    assert "500 MiB are available (RAM)" in reduced.why


def test_plan_respects_dev_shm() -> None:
    profile = profile_dataset([np.zeros(MIB, np.uint8)] * 64, 16)
    docker = plan_workers(profile, dataclasses.replace(RESOURCES, shm=64 * MIB))
    assert (docker.workers, docker.prefetch) == (2, 1)
    assert docker.memory.shared == 64 * MIB
    assert "of /dev/shm, which has 64 MiB" in docker.why
    without = plan_workers(profile, dataclasses.replace(RESOURCES, shm=0, gpu=False))
    assert without.dataloader_kwargs == {"num_workers": 0, "prefetch_factor": None, "pin_memory": False}
    with pytest.raises(CannotFit, match="use smaller batches"):
        plan_workers(profile, dataclasses.replace(RESOURCES, memory=MIB))


@pytest.mark.medium
def test_dataloader_accepts_the_planned_arguments() -> None:
    tokens = Tokens(10)
    plan = plan_workers(profile_dataset(tokens, 1), dataclasses.replace(RESOURCES, gpu=False, cores=1))
    kwargs: Any = plan.dataloader_kwargs
    loader = torch.utils.data.DataLoader(tokens, batch_size=1, **kwargs)
    assert plan.workers == 1
    assert [batch.shape[1] for batch in loader] == list(range(1, 11))
