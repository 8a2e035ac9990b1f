from __future__ import annotations

import dataclasses

import pytest

from oomph.data import LoaderWorkload, default_budget, predict_loader_memory
from oomph.errors import UsageError
from oomph.units import MIB

SAMPLE = 3 * 640 * 640


@pytest.mark.parametrize(("workers", "prefetch", "batches"), [(1, 1, 3), (1, 2, 4), (2, 2, 6), (4, 2, 10), (0, 2, 0)])
def test_shared_memory_of_a_dataloader_is_as_measured(workers: int, prefetch: int, batches: int) -> None:
    """Measured in /dev/shm with torch 2.13, with training loops of different speed."""
    workload = LoaderWorkload(batch=8, sample_bytes=SAMPLE, decode_bytes=0, workers=workers, prefetch=prefetch)
    assert predict_loader_memory(workload).shared == batches * 8 * SAMPLE


def test_dataloader_multiplies_by_workers_and_oomph_does_not() -> None:
    dataloader = LoaderWorkload(batch=8, sample_bytes=SAMPLE, decode_bytes=144_000_000, workers=8)
    oomph = dataclasses.replace(dataloader, workers=0, budget=256_000_000)
    assert predict_loader_memory(dataloader).decoding > 8 * 144_000_000
    assert predict_loader_memory(oomph).decoding == 256_000_000
    assert predict_loader_memory(oomph).shared == 0
    spawned = dataclasses.replace(dataloader, start_method="spawn")
    difference = predict_loader_memory(spawned).total - predict_loader_memory(dataloader).total
    assert difference == 8 * (145 - 11) * MIB


def test_pinned_memory_is_rounded_up_to_powers_of_two() -> None:
    workload = LoaderWorkload(16, SAMPLE, 0, workers=1, prefetch=1, pin_memory=True)
    assert predict_loader_memory(workload).pinned == 3 * 32 * MIB


def test_unknown_start_method_is_rejected() -> None:
    with pytest.raises(UsageError, match="choose one of fork, spawn, forkserver"):
        predict_loader_memory(LoaderWorkload(1, 1, 1, start_method="thread"))


def test_default_budget_is_between_64_mib_and_1_gib() -> None:
    assert 64 * MIB <= default_budget() <= 1024 * MIB
