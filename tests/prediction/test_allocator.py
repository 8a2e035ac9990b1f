"""The replay against traces recorded from a real GPU, and its laws."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.prediction import Allocator, OutOfMemory, Rules
from oomph.prediction._allocator import round_size, segment_size
from oomph.units import MIB

FILE = Path(__file__).parent / "recorded" / "allocator_h200.json.gz"
TRACES: list[dict[str, Any]] = json.loads(gzip.decompress(FILE.read_bytes()))["traces"]


def play(allocator: Allocator, events: list[int]) -> None:
    """Positive numbers are requests, negative ones free the request of that number."""
    blocks: list[Any] = []
    for event in events:
        if event >= 0:
            blocks.append(allocator.malloc(event))
        else:
            allocator.free(blocks[-event - 1])


def test_there_are_traces_of_both_allocators() -> None:
    assert len([trace for trace in TRACES if trace["expandable"]]) >= 20
    assert len([trace for trace in TRACES if not trace["expandable"]]) >= 20


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: f"{trace['name']}-{trace['expandable']}")
def test_peaks_are_those_of_the_gpu_byte_for_byte(trace: dict[str, Any]) -> None:
    allocator = Allocator(Rules(expandable=trace["expandable"]), trace["segments"])
    play(allocator, trace["events"])
    assert (allocator.peak_allocated, allocator.peak_reserved) == (trace["allocated"], trace["reserved"])


def test_sizes_are_rounded_as_torch_rounds_them() -> None:
    assert [round_size(size) for size in (0, 1, 512, 513)] == [512, 512, 512, 1024]
    assert segment_size(MIB) == 2 * MIB
    assert segment_size(MIB + 512) == 20 * MIB
    assert segment_size(10 * MIB) == 10 * MIB
    assert segment_size(10 * MIB + 512) == 12 * MIB


def test_a_large_block_keeps_a_rest_of_up_to_a_mebibyte() -> None:
    allocator = Allocator(Rules(expandable=False))
    allocator.malloc(19 * MIB + 512)
    assert allocator.allocated == 20 * MIB
    assert Allocator(Rules(expandable=True)).malloc(19 * MIB + 512).size == 19 * MIB + 512


def test_cached_segments_are_returned_before_a_request_fails() -> None:
    allocator = Allocator(Rules(expandable=False, cap=100 * MIB))
    allocator.free(allocator.malloc(80 * MIB))
    assert allocator.reserved == 80 * MIB
    allocator.malloc(90 * MIB)
    assert (allocator.reserved, allocator.retries) == (90 * MIB, 1)
    with pytest.raises(OutOfMemory):
        allocator.malloc(20 * MIB)


def test_expandable_segments_use_a_hole_that_others_can_t() -> None:
    """Two neighbours of 30 MiB are freed and 60 are asked for: one hole, or two segments to return first."""
    for expandable, retries in ((True, 0), (False, 1)):
        allocator = Allocator(Rules(expandable=expandable, cap=100 * MIB))
        blocks = [allocator.malloc(30 * MIB) for _ in range(3)]
        allocator.free(blocks[1])
        allocator.free(blocks[2])
        assert allocator.malloc(60 * MIB).size == 60 * MIB
        assert allocator.retries == retries


def test_blocks_beyond_the_split_limit_stay_whole() -> None:
    allocator = Allocator(Rules(expandable=False, max_split=64 * MIB))
    allocator.free(allocator.malloc(100 * MIB))
    small = allocator.malloc(30 * MIB)
    assert small.size == 30 * MIB
    assert allocator.reserved == 130 * MIB
    assert allocator.malloc(90 * MIB).size == 100 * MIB


operations = st.lists(
    st.one_of(st.integers(1, 64 * MIB), st.integers(1, 4096), st.integers(-200, -1)), min_size=1, max_size=120
)


def run(allocator: Allocator, script: list[int]) -> list[Any]:
    """Requests, and frees of whatever is alive; returns what is alive at the end."""
    alive: list[Any] = []
    for number in script:
        if number > 0:
            alive.append((allocator.malloc(number), number))
        elif alive:
            block, _ = alive.pop(-number % len(alive))
            allocator.free(block)
    return alive


@settings(max_examples=150, deadline=None)
@given(operations, st.booleans())
def test_the_laws_of_an_allocator_hold(script: list[int], expandable: bool) -> None:  # noqa: FBT001
    allocator = Allocator(Rules(expandable=expandable))
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


@settings(max_examples=100, deadline=None)
@given(operations)
def test_what_runs_under_a_cap_exceeds_it_by_less_than_a_page(script: list[int]) -> None:
    """Torch checks the cap before it rounds up to pages of 20 MiB, and so do we."""
    free = Allocator(Rules(expandable=True))
    run(free, script)
    capped = Allocator(Rules(expandable=True, cap=max(free.peak_reserved * 3 // 4, 2 * MIB)))
    try:
        run(capped, script)
    except OutOfMemory:
        return
    assert capped.peak_reserved < capped.rules.cap + 20 * MIB


@settings(max_examples=100, deadline=None)
@given(operations)
def test_the_same_script_gives_the_same_answer(script: list[int]) -> None:
    first, second = Allocator(Rules()), Allocator(Rules())
    run(first, script)
    run(second, script)
    assert (first.peak_allocated, first.peak_reserved) == (second.peak_allocated, second.peak_reserved)
