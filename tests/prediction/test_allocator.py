"""The replay of the allocator: against histories recorded on a GPU, and its invariants."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.prediction import Allocator, OutOfMemory
from oomph.prediction._allocator import round_size, segment_size
from oomph.settings import AllocatorConfig
from oomph.units import MIB

FILE = Path(__file__).parent / "recorded" / "allocator_h200.json.gz"
HISTORIES: list[dict[str, Any]] = json.loads(gzip.decompress(FILE.read_bytes()))["traces"]


def replay_events(allocator: Allocator, events: list[int]) -> None:
    """Replay events: i >= 0 requests i bytes, -i frees the i-th request."""
    blocks: list[Any] = []
    for event in events:
        if event >= 0:
            blocks.append(allocator.malloc(event))
        else:
            allocator.free(blocks[-event - 1])


def test_histories_cover_both_allocators() -> None:
    assert len([history for history in HISTORIES if history["expandable"]]) >= 20
    assert len([history for history in HISTORIES if not history["expandable"]]) >= 20


@pytest.mark.medium
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: f"{history['name']}-{history['expandable']}")
def test_peaks_equal_the_recorded_ones(history: dict[str, Any]) -> None:
    allocator = Allocator(AllocatorConfig(expandable=history["expandable"]), history["segments"])
    replay_events(allocator, history["events"])
    assert (allocator.peak_allocated, allocator.peak_reserved) == (history["allocated"], history["reserved"])


def test_sizes_are_rounded_as_torch_rounds_them() -> None:
    assert [round_size(size) for size in (0, 1, 512, 513)] == [512, 512, 512, 1024]
    assert segment_size(MIB) == 2 * MIB
    assert segment_size(MIB + 512) == 20 * MIB
    assert segment_size(10 * MIB) == 10 * MIB
    assert segment_size(10 * MIB + 512) == 12 * MIB


def test_large_block_is_not_split_for_a_rest_of_a_mebibyte() -> None:
    allocator = Allocator(AllocatorConfig(expandable=False))
    allocator.malloc(19 * MIB + 512)
    assert allocator.allocated == 20 * MIB
    assert Allocator(AllocatorConfig(expandable=True)).malloc(19 * MIB + 512).size == 19 * MIB + 512


def test_cached_segments_are_returned_before_a_request_fails() -> None:
    allocator = Allocator(AllocatorConfig(expandable=False, cap=100 * MIB))
    allocator.free(allocator.malloc(80 * MIB))
    assert allocator.reserved == 80 * MIB
    allocator.malloc(90 * MIB)
    assert (allocator.reserved, allocator.retries) == (90 * MIB, 1)
    with pytest.raises(OutOfMemory):
        allocator.malloc(20 * MIB)


def test_expandable_segments_merge_free_neighbors() -> None:
    """Two freed blocks of 30 MiB serve 60 MiB in one range; as separate segments they must be returned first."""
    for expandable, retries in ((True, 0), (False, 1)):
        allocator = Allocator(AllocatorConfig(expandable=expandable, cap=100 * MIB))
        blocks = [allocator.malloc(30 * MIB) for _ in range(3)]
        allocator.free(blocks[1])
        allocator.free(blocks[2])
        assert allocator.malloc(60 * MIB).size == 60 * MIB
        assert allocator.retries == retries


def test_blocks_above_max_split_are_not_split() -> None:
    allocator = Allocator(AllocatorConfig(expandable=False, max_split=64 * MIB))
    allocator.free(allocator.malloc(100 * MIB))
    small = allocator.malloc(30 * MIB)
    assert small.size == 30 * MIB
    assert allocator.reserved == 130 * MIB
    assert allocator.malloc(90 * MIB).size == 100 * MIB


operations = st.lists(
    st.one_of(st.integers(1, 64 * MIB), st.integers(1, 4096), st.integers(-200, -1)), min_size=1, max_size=120
)


def run(allocator: Allocator, script: list[int]) -> list[Any]:
    """Allocate positive numbers and free live blocks for negative ones; return the live blocks."""
    alive: list[Any] = []
    for number in script:
        if number > 0:
            alive.append((allocator.malloc(number), number))
        elif alive:
            block, _ = alive.pop(-number % len(alive))
            allocator.free(block)
    return alive


@settings(max_examples=60, deadline=None)
@given(operations, st.booleans())
def test_invariants_of_the_allocator(script: list[int], expandable: bool) -> None:  # noqa: FBT001
    allocator = Allocator(AllocatorConfig(expandable=expandable))
    alive = run(allocator, script)
    spans = sorted((block.ptr, block.ptr + block.size) for block, _ in alive)
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(spans)), "blocks overlap"
    assert all(block.size >= size for block, size in alive)
    assert allocator.allocated == sum(block.size for block, _ in alive)
    assert allocator.allocated <= allocator.reserved <= allocator.peak_reserved
    assert allocator.peak_allocated <= allocator.peak_reserved
    for block, _ in alive:
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (0, 0), "memory leaked"


@pytest.mark.parametrize("expandable", [False, True])
def test_cached_memory_of_a_stream_serves_no_other_stream(expandable: bool) -> None:  # noqa: FBT001
    allocator = Allocator(AllocatorConfig(expandable=expandable, cap=100 * MIB))
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(40 * MIB, stream=1)
    assert allocator.reserved == 100 * MIB
    allocator.malloc(40 * MIB, stream=1)
    assert allocator.retries == 1, "only at the cap is the memory returned to the device, and given to the other stream"
    assert allocator.reserved == 80 * MIB


@settings(max_examples=40, deadline=None)
@given(operations)
def test_reserved_memory_exceeds_the_cap_by_less_than_a_page(script: list[int]) -> None:
    """torch checks the cap before it rounds up to pages of 20 MiB."""
    uncapped = Allocator(AllocatorConfig(expandable=True))
    run(uncapped, script)
    cap = max(uncapped.peak_reserved * 3 // 4, 2 * MIB)
    capped = Allocator(AllocatorConfig(expandable=True, cap=cap))
    try:
        run(capped, script)
    except OutOfMemory:
        return
    assert capped.peak_reserved < cap + 20 * MIB


@settings(max_examples=40, deadline=None)
@given(operations)
def test_replay_is_deterministic(script: list[int]) -> None:
    first, second = (Allocator(AllocatorConfig(expandable=True)) for _ in range(2))
    run(first, script)
    run(second, script)
    assert (first.peak_allocated, first.peak_reserved) == (second.peak_allocated, second.peak_reserved)
