"""Room that was found is there: shown with the replay of torch's allocator, and on a GPU with the allocator itself."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oomph.prediction import Allocator
from oomph.recovery import _room
from oomph.recovery._room import LargeRoom, NoRoom, SmallRoom, blocks_for, room_of
from oomph.settings import AllocatorConfig
from oomph.units import MIB

SIZES = st.one_of(st.integers(1, 4096), st.integers(1, 2 * MIB), st.integers(1, 40 * MIB))
SETS = st.lists(SIZES, max_size=40)
CASES = (
    st.lists(SETS, max_size=3),
    SETS,
    st.sampled_from((AllocatorConfig(expandable=True), AllocatorConfig(expandable=False))),
)


def crowd(rules: AllocatorConfig, before: list[int]) -> Allocator:
    """An allocator that was in use: every second block is free again."""
    allocator = Allocator(rules)
    held = [allocator.malloc(size) for size in before]
    for block in held[::2]:
        allocator.free(block)
    return allocator


def make(allocator: Allocator, sizes: Sequence[int]) -> list[int]:
    """Tensors that are alive together and then gone: where they were."""
    made = [allocator.malloc(size) for size in sizes]
    places = [block.ptr for block in made]
    for block in made:
        allocator.free(block)
    return places


@settings(max_examples=300, deadline=None)
@given(*CASES)
@example(
    [[600_000] * 40], [], AllocatorConfig(expandable=False)
)  # blocks of which each serves one, with much left over
def test_blocks_are_room_for_every_group(groups: list[list[int]], before: list[int], rules: AllocatorConfig) -> None:
    allocator = crowd(rules, before)
    make(allocator, blocks_for(groups))
    reserved = allocator.reserved
    for group in groups:
        make(allocator, group)
    assert allocator.reserved == reserved


@settings(max_examples=300, deadline=None)
@given(*CASES)
def test_who_was_in_the_same_places_twice_is_there_again(
    groups: list[list[int]], before: list[int], rules: AllocatorConfig
) -> None:
    allocator = crowd(rules, before)
    seen: list[list[list[int]]] = []
    while len(seen) < 2 or seen[-1] != seen[-2]:
        seen.append([make(allocator, group) for group in groups])
        assert len(seen) < 8
    reserved = allocator.reserved
    assert [make(allocator, group) for group in groups] == seen[-1]
    assert allocator.reserved == reserved


def test_once_would_not_do() -> None:
    """Neither is enough: the sum of small ones, and large ones that were somewhere once."""
    allocator = crowd(AllocatorConfig(expandable=False), [])
    make(allocator, [MIB] * 24)
    reserved = allocator.reserved
    make(allocator, [600_000] * 40)
    assert allocator.reserved > reserved
    allocator = crowd(AllocatorConfig(expandable=False), [])
    large = [6 * MIB, 12 * MIB, 13 * MIB]
    make(allocator, large)
    reserved = allocator.reserved
    make(allocator, large)
    assert allocator.reserved > reserved


def test_few_blocks_are_asked_for() -> None:
    assert blocks_for([]) == blocks_for([[]]) == []
    assert blocks_for([[4, 512, 513], [600]]) == [512 + 512 + 1024]
    assert blocks_for([[5 * MIB, 4], [4 * MIB, 4 * MIB, 1000]]) == [1024, 8 * MIB]
    assert sum(blocks_for([[100_000] * 100])) <= 22 * MIB


def test_what_kind_of_room() -> None:
    few = [torch.empty(1000), torch.empty(1000, dtype=torch.float64)]
    many = [torch.empty(40 * MIB, device="meta"), torch.empty(2, device="meta")]
    assert isinstance(room_of([few]), SmallRoom)
    assert isinstance(room_of([many]), LargeRoom)
    assert room_of([[*many, few[1]]]) is None
    assert isinstance(room_of([many, few[1:]]), LargeRoom)


def test_tensors_that_are_never_in_the_same_places_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    room, numbers = LargeRoom([[torch.zeros(3)]]), itertools.count()
    monkeypatch.setattr(room, "_make", lambda: [next(numbers)])
    with pytest.raises(NoRoom):
        room.find()
    monkeypatch.setattr(room, "_make", lambda: [0])
    room.find()


def test_only_an_allocator_that_keeps_memory_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    kept = _room.is_kept.__wrapped__
    for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert kept()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert kept()
    for other in ("roundup_power2_divisions:4", "expandable_segments:True,max_split_size_mb:64", "backend:native"):
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", other)
        assert not kept()
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    assert not kept()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the allocator is a GPU's")
def test_what_can_not_be_had_is_said_and_nothing_is_held() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    sizes = [torch.empty(1000, device="meta"), torch.empty(1024 * MIB, device="meta")]
    room = SmallRoom(torch.device("cuda", torch.cuda.current_device()), [sizes])
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 3 * MIB) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            room.find()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.memory_allocated() == before
    room.find()
    assert torch.cuda.memory_allocated() == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the allocator is a GPU's")
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_on_a_gpu(seed: int, *, large: bool) -> None:
    chance = random.Random(seed)  # noqa: S311  no secrets
    most = chance.choice([1024, MIB // 2, 10 * MIB])
    groups = [
        [torch.zeros(chance.randint(1, most), device="cuda") for _ in range(chance.randint(1, 40))] for _ in range(3)
    ]
    for one in itertools.chain.from_iterable(groups):
        one.grad = torch.empty_like(one)
    torch.cuda.empty_cache()
    (LargeRoom(groups) if large else SmallRoom(groups[0][0].device, groups)).find()
    reserved, total = torch.cuda.memory_reserved(), torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(reserved / total)  # nothing more from the device
    try:
        for group in groups:
            made = torch._foreach_sqrt(group)
            del made
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.cuda.memory_reserved() == reserved
