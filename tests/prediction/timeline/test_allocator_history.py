"""The allocator's actions: they balance, never overlap, and end in the segments that are reported."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.prediction import replay
from oomph.prediction.timeline._allocator_history import AllocatorHistory, allocator_history
from oomph.settings import AllocatorConfig
from oomph.trace import Phase, Storage, StorageKind, Trace
from oomph.units import MIB

CONFIGS = {
    "default": AllocatorConfig(expandable=False),
    "expandable": AllocatorConfig(expandable=True),
    "max split": AllocatorConfig(expandable=False, max_split=20 * MIB),
}


def trace_of(requests: list[tuple[int, int]]) -> Trace:
    """Return a trace that allocates each size and frees it again after some more allocations; large waits never end."""
    events: list[int] = []
    for index, _ in enumerate(requests):
        events += [-(old + 1) for old in range(index) if old + requests[old][1] == index]
        events.append(index + 1)
    storages = tuple(Storage(size, StorageKind.TEMPORARY, "op", "", Phase.FORWARD, 0) for size, _ in requests)
    return Trace(storages, tuple(events), ((0, 0, Phase.FORWARD),), len(events), (), ())


def check_consistency(history: AllocatorHistory) -> None:
    """Check every action: blocks lie in reserved memory, live ones never overlap, and what is freed was allocated."""
    live: dict[int, int] = {}
    reserved: set[int] = set()  # pages of 1 MiB
    for action in history.actions:
        pages = set(range(action.address // MIB, -(-(action.address + action.size) // MIB)))
        if action.name == "alloc":
            assert pages <= reserved
            assert all(
                action.address + action.size <= address or address + size <= action.address
                for address, size in live.items()
            )
            live[action.address] = action.size
        elif action.name == "free":
            assert live.pop(action.address) == action.size
        elif action.name in {"segment_alloc", "segment_map"}:
            assert not pages & reserved
            reserved |= pages
        else:
            assert pages <= reserved
            reserved -= pages
        assert action.allocated == sum(live.values())
        assert action.reserved == len(reserved) * MIB
    blocks = [block for segment in history.segments for block in segment.blocks]
    assert {block.address: block.size for block in blocks if block.storage is not None} == live
    assert sum(segment.size for segment in history.segments) == len(reserved) * MIB
    for segment in history.segments:
        for block, after in itertools.pairwise(segment.blocks):
            assert block.address + block.size == after.address


sizes = st.one_of(st.integers(1, 3000), st.integers(1, 3 * MIB), st.integers(1, 60 * MIB))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@given(requests=st.lists(st.tuples(sizes, st.integers(1, 12)), min_size=1, max_size=25))
@settings(max_examples=40, deadline=None)
def test_history_is_consistent_and_has_the_peaks_of_the_replay(
    config: AllocatorConfig, requests: list[tuple[int, int]]
) -> None:
    trace = trace_of(requests)
    history = allocator_history(trace, config)
    check_consistency(history)
    peaks = replay(trace, config)
    assert max(action.allocated for action in history.actions) == peaks.allocated
    assert max(action.reserved for action in history.actions) == peaks.reserved


def test_block_without_a_split_counts_whole() -> None:
    history = allocator_history(trace_of([(19 * MIB + 512, 99)]), CONFIGS["default"])
    assert [(action.name, action.size) for action in history.actions] == [
        ("segment_alloc", 20 * MIB),
        ("alloc", 20 * MIB),
    ]


def test_expandable_segments_grow_page_by_page() -> None:
    history = allocator_history(trace_of([(30 * MIB, 99), (30 * MIB, 99), (100, 99)]), CONFIGS["expandable"])
    assert [(action.name, action.size // MIB) for action in history.actions if action.name != "alloc"] == [
        ("segment_map", 40),
        ("segment_map", 20),
        ("segment_map", 2),
    ]
    assert sorted((segment.is_small, segment.size // MIB) for segment in history.segments) == [(False, 60), (True, 2)]
