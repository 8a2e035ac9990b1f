from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from oomph.data import (
    HostResources,
    LoaderWorkload,
    default_budget,
    plan_workers,
    predict_loader_memory,
    prefetch_to_device,
    profile_dataset,
    sample_bytes,
)
from oomph.data.loader import Loader
from oomph.errors import CannotFit, UsageError
from oomph.units import GIB, MIB

from .pictures import photos

SAMPLE = 3 * 640 * 640


@pytest.mark.parametrize(
    ("workers", "batch", "prefetch", "mebibytes"),
    [(1, 8, 2, 18.8), (2, 8, 2, 37.5), (2, 8, 4, 75.0), (2, 16, 2, 75.0), (4, 16, 2, 150.0), (4, 16, 4, 300.0)],
)
def test_shared_memory_is_what_was_measured(workers: int, batch: int, prefetch: int, mebibytes: float) -> None:
    load = LoaderWorkload(batch=batch, sample=SAMPLE, decode=0, workers=workers, prefetch=prefetch)
    assert predict_loader_memory(load).shared / MIB == pytest.approx(mebibytes, abs=0.1)


def test_a_data_loader_multiplies_by_workers_and_our_budget_does_not() -> None:
    theirs = LoaderWorkload(batch=8, sample=SAMPLE, decode=144_000_000, workers=8)
    ours = dataclasses.replace(theirs, workers=0, budget=256_000_000)
    assert predict_loader_memory(theirs).decoding > 8 * 144_000_000
    assert predict_loader_memory(ours).decoding == 256_000_000
    assert predict_loader_memory(ours).shared == 0
    spawned = dataclasses.replace(theirs, start="spawn")
    assert predict_loader_memory(spawned).total - predict_loader_memory(theirs).total == 8 * (145 - 11) * MIB


def test_pinned_memory_is_rounded_to_powers_of_two() -> None:
    load = LoaderWorkload(batch=16, sample=SAMPLE, decode=0, workers=1, prefetch=1, pin=True)
    assert predict_loader_memory(load).pinned == 3 * 32 * MIB


def test_an_unknown_start_is_one_sentence() -> None:
    with pytest.raises(UsageError):
        predict_loader_memory(LoaderWorkload(1, 1, 1, start="thread"))


def test_the_default_budget_is_a_share_of_what_is_left() -> None:
    assert 64 * MIB <= default_budget() <= 1024 * MIB


class Tokens(torch.utils.data.Dataset[torch.Tensor]):
    """Sequences of every length."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(index % 50 + 1, dtype=torch.int64)


def test_the_worst_batch_of_a_map_style_data_set() -> None:
    found = profile_dataset(Tokens(100), 4)
    assert (found.sample, found.batch, found.exact) == (50 * 8, 4 * 50 * 8, True)
    assert {number % 50 for number in found.worst} <= {48, 49}
    assert found.host.batches == found.batch


def test_the_worst_batch_of_buckets_is_not_always_that_of_the_longest() -> None:
    buckets = [[49], [9] * 8, [29, 30, 31]]
    found = profile_dataset(Tokens(50), buckets, size_of=lambda index: (index + 1) * 8)
    assert found.worst == (29, 30, 31)
    assert found.batch == 3 * 32 * 8


def test_large_data_sets_are_sampled_and_say_so() -> None:
    assert not profile_dataset(Tokens(5000), 2).exact


def test_iterable_data_sets_are_looked_at_too() -> None:
    found = profile_dataset(iter([np.zeros(10, np.uint8), np.zeros(70, np.uint8)]), 3)
    assert (found.sample, found.batch, found.worst, found.exact) == (70, 210, (), True)
    with pytest.raises(UsageError, match="empty"):
        profile_dataset(iter(()), 1)


ROOM = HostResources(memory=8 * GIB, bound="RAM", shm=4 * GIB, cores=6, gpu=True)


def test_a_wrapped_data_set_gets_the_workers_that_fit() -> None:
    found = profile_dataset(Tokens(100), 4)
    assert plan_workers(found, ROOM).arguments == {"num_workers": 6, "prefetch_factor": 2, "pin_memory": True}
    spawned = profile_dataset(Tokens(100), 4, load=LoaderWorkload(1, 1, 0, start="spawn"))
    few = plan_workers(spawned, dataclasses.replace(ROOM, memory=500 * MIB))
    assert few.workers == 3  # 145 MiB each
    assert few.memory.total <= 500 * MIB
    assert "with 4 workers it takes 5" in few.why


def test_a_small_shm_limits_workers_and_nothing_at_all_is_said() -> None:
    found = profile_dataset([np.zeros(MIB, np.uint8)] * 64, 16)
    docker = plan_workers(found, dataclasses.replace(ROOM, shm=64 * MIB))
    assert (docker.workers, docker.prefetch) == (4, 1)
    assert docker.memory.shared == 64 * MIB
    assert "of /dev/shm, which has 64 MiB" in docker.why
    none = plan_workers(found, dataclasses.replace(ROOM, shm=0, gpu=False))
    assert none.arguments == {"num_workers": 0, "prefetch_factor": None, "pin_memory": False}
    with pytest.raises(CannotFit, match="make batches smaller"):
        plan_workers(found, dataclasses.replace(ROOM, memory=MIB))


def test_a_wrapped_data_set_runs_with_the_planned_arguments() -> None:
    tokens = Tokens(10)
    plan = plan_workers(profile_dataset(tokens, 1), dataclasses.replace(ROOM, gpu=False, cores=1))
    loader = torch.utils.data.DataLoader(tokens, batch_size=1, **plan.arguments)  # type: ignore[arg-type]
    assert plan.workers == 1
    assert [batch.shape[1] for batch in loader] == list(range(1, 11))


def test_bytes_of_nested_samples() -> None:
    image = Image.new("RGB", (10, 10))
    assert (
        sample_bytes({"a": [torch.zeros(3), np.zeros(2, np.uint8)], "b": (b"xyz", 1.5), "c": image})
        == 12 + 2 + 3 + 8 + 300
    )


def test_batches_reach_a_device(tmp_path: Path) -> None:
    loader = Loader(photos(tmp_path, 5), 32, 2)
    moved = [(batch.indices.tolist(), batch.images.device.type) for batch in prefetch_to_device(loader, "cpu")]
    assert moved == [([0, 1], "cpu"), ([2, 3], "cpu"), ([4], "cpu")]
