from __future__ import annotations

import math

import pytest

from oomph.machine import find_target
from oomph.planner.explorer._choices import (
    groups_of,
    last_batch,
    sample_values,
    size_ends,
    size_values,
    traced_precision,
)


@pytest.mark.parametrize("requested", [8, 64, 100, 224, 300, 512, 640, 1333])
def test_sizes_are_few_multiples_of_a_step_with_the_requested_one(requested: int) -> None:
    first, last = size_ends(requested)
    sizes = size_values(first, last, requested)
    assert requested in sizes
    assert (sizes[0], sizes[-1]) == (first, 2 * requested)
    assert 2 <= len(sizes) <= 9
    step = math.gcd(requested, 32 if requested >= 128 else 8)
    assert all(size % step == 0 for size in sizes)


def test_samples_contain_the_planned_ones() -> None:
    assert sample_values(2, 20, {20, 7}) == (2, 3, 4, 6, 7, 8, 12, 16, 20)
    assert sample_values(1, 1, {1}) == (1,)


@pytest.mark.parametrize(("fitting", "last"), [(3, 64), (100, 100), (10**6, 256), (-5, 64)])
def test_the_largest_batch_fills_the_largest_gpu_within_bounds(fitting: int, last: int) -> None:
    assert last_batch(16, fitting) == last


def test_the_target_comes_first_and_well_known_gpus_share_two_architectures() -> None:
    groups = groups_of(find_target("RTX 3090"))
    assert groups[0].targets[0].name == "GeForce RTX 3090"
    assert len(groups) == 2
    assert len({target.name for group in groups for target in group.targets}) == 8
    assert [target.capability[0] for group in groups for target in group.targets] == [8] * 6 + [9] * 2


def test_another_architecture_is_a_group_of_its_own() -> None:
    groups = groups_of(find_target("T4"))
    assert [target.name for target in groups[0].targets] == ["T4"]
    assert len(groups) == 3


def test_beside_the_cpu_there_is_nothing() -> None:
    (group,) = groups_of(find_target("cpu"))
    assert len(group.targets) == 1


def test_precisions_that_allocate_alike_share_traces() -> None:
    turing, ampere = find_target("T4"), find_target("A100 80GB")
    assert traced_precision("tf32", ampere) == "fp32"
    assert traced_precision("amp-fp16", ampere) == "amp-bf16"
    assert traced_precision("amp-fp16", turing) == "amp-fp16"  # attention in bf16 needs Ampere
