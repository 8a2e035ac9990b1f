"""Room that was found is there: shown with the replay of torch's allocator, and on a GPU with the allocator itself."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oomph.ledger import Allocator, Rules
from oomph.runner import _room
from oomph.runner._room import Room, rounds_for
from oomph.units import MIB

SIZES = st.one_of(st.integers(1, 4096), st.integers(1, 2 * MIB), st.integers(1, 40 * MIB))
GROUPS = st.lists(st.lists(SIZES, max_size=12), max_size=3)


def has_room(rounds: list[list[int]], groups: list[list[int]], before: list[int], rules: Rules, seed: int) -> bool:
    """Whether all tensors of each group find a place without more from the device, after such blocks were taken.

    Args:
        rounds: what is taken and let go of first, round by round.
        groups: the tensors, of which those of a group are alive together.
        before: what else was taken before that; every second of it is free again.
        rules: of the allocator.
        seed: of the order in which they are let go of.
    """
    chance, allocator = random.Random(seed), Allocator(rules)  # noqa: S311  no secrets
    held = [allocator.malloc(size) for size in before]
    for block in held[::2]:
        allocator.free(block)
    for blocks in rounds:
        for block in [allocator.malloc(size) for size in blocks]:
            allocator.free(block)
    reserved = allocator.reserved
    for group in groups:
        taken = [allocator.malloc(size) for size in group]
        if allocator.reserved > reserved:
            return False
        for block in chance.sample(taken, len(taken)):
            allocator.free(block)
    return True


@settings(max_examples=500, deadline=None)
@given(GROUPS, st.lists(SIZES, max_size=12), st.sampled_from((True, False)), st.integers(0, 1000))
@example([[600_000] * 40], [], False, 0)  # blocks of which each serves one, with much left over
def test_every_group_finds_its_room(
    groups: list[list[int]],
    before: list[int],
    expandable: bool,  # noqa: FBT001  hypothesis gives it
    seed: int,
) -> None:
    assert has_room(rounds_for(groups), groups, before, Rules(expandable=expandable), seed)


def test_the_sum_alone_would_not_do() -> None:
    """Small tensors leave rests that no other one fits into: what the test above would find."""
    small = [600_000] * 40
    assert not has_room([[MIB] * 24], [small], [], Rules(expandable=False), 0)


def test_it_is_not_much_more_than_needed() -> None:
    assert rounds_for([]) == rounds_for([[]]) == []
    assert rounds_for([[4, 512, 513], [600]]) == [[512 + 512 + 1024]]
    assert rounds_for([[5 * MIB, 4], [4 * MIB, 1000]]) == [[1024, 5 * MIB], [4 * MIB]]
    assert sum(rounds_for([[100_000] * 100])[0]) <= 21 * MIB


def test_only_an_allocator_that_keeps_memory_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    kept = _room.is_kept.__wrapped__
    for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert kept()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert kept()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:4")
    assert not kept()
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    assert not kept()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the allocator is a GPU's")
@pytest.mark.parametrize("seed", range(20))
def test_on_a_gpu(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  no secrets
    most = chance.choice([4096, 2 * MIB, 40 * MIB])
    groups = [[chance.randint(1, most) for _ in range(chance.randint(1, 40))] for _ in range(3)]
    torch.cuda.empty_cache()
    Room(torch.device("cuda"), groups).find()
    reserved, total = torch.cuda.memory_reserved(), torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(reserved / total)  # nothing more from the device
    try:
        for group in groups:
            tensors = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in group]
            del tensors
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.memory_reserved() == reserved
