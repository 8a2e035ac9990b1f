"""What the allocator does in the traced steps, action by action, with addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...settings import AllocatorConfig
from ...trace import Trace
from .._allocator import Allocator, _Block, _Pool


@dataclass(frozen=True)
class Action:
    """One action of the allocator.

    Attributes:
        name: "alloc" or "free" of a block; "segment_alloc" or "segment_free" of a segment, or for expandable segments
            "segment_map" or "segment_unmap" of pages.
        stream: the stream that the memory is used on.
        address: where the memory begins.
        size: bytes, as the allocator counts them.
        event: index of the event in the trace.
        storage: index of the storage in the block; None for segments.
        allocated: bytes in blocks after the action.
        reserved: bytes in segments after the action.
    """

    name: str
    stream: int
    address: int
    size: int
    event: int
    storage: int | None
    allocated: int
    reserved: int


@dataclass(frozen=True)
class Block:
    """Part of a segment at the end of the history; free if it holds no storage."""

    address: int
    size: int
    storage: int | None


@dataclass(frozen=True)
class Segment:
    """Contiguous memory at the end of the history, with its blocks in the order of addresses."""

    is_small: bool
    stream: int
    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        """Bytes of the segment."""
        return sum(block.size for block in self.blocks)


@dataclass(frozen=True)
class AllocatorHistory:
    """All actions of the allocator in the training steps, and its segments after them."""

    actions: tuple[Action, ...]
    segments: tuple[Segment, ...]


class _RecordingAllocator(Allocator):
    """An allocator that records what it does."""

    def __init__(self, config: AllocatorConfig) -> None:
        super().__init__(config)
        self.actions: list[Action] = []
        self.event = 0

    def record(self, name: str, stream: int, address: int, size: int, storage: int | None = None) -> None:
        """Record an action that has happened."""
        self.actions.append(Action(name, stream, address, size, self.event, storage, self.allocated, self.reserved))

    def _reserve(self, pool: _Pool, address: int, size: int) -> None:
        super()._reserve(pool, address, size)
        self.record("segment_map" if self.config.expandable else "segment_alloc", pool.stream, address, size)

    def _return(self, pool: _Pool, address: int, size: int) -> None:
        super()._return(pool, address, size)
        self.record("segment_unmap" if self.config.expandable else "segment_free", pool.stream, address, size)


def allocator_history(trace: Trace, config: AllocatorConfig) -> AllocatorHistory:
    """Replay the training steps of a trace without a cap, and record every action."""
    allocator = _RecordingAllocator(config)
    blocks: dict[int, _Block] = {}
    for allocator.event, event in enumerate(trace.events[: trace.training_events]):
        storage = abs(event) - 1
        if event > 0:
            requested = trace.storages[storage]
            block = blocks[storage] = allocator.malloc(requested.size, requested.stream)
            allocator.record("alloc", requested.stream, block.ptr, block.size, storage)
        else:
            block = blocks.pop(storage)
            address, size = block.ptr, block.size  # before it merges with its neighbors
            allocator.free(block)
            allocator.record("free", block.pool.stream, address, size, storage)
    storages = {block.ptr: storage for storage, block in blocks.items()}
    return AllocatorHistory(
        tuple(allocator.actions), tuple(_segments(_first_blocks(allocator, blocks.values()), storages))
    )


def _first_blocks(allocator: Allocator, live: Iterable[_Block]) -> list[_Block]:
    """Return the block at the lowest address of each segment, or of each address range of expandable segments."""
    blocks = [*live, *(block for pool in allocator.pools for block in (*pool.blocks.values(), *pool.unmapped))]
    return sorted((block for block in blocks if block.prev is None), key=lambda block: block.ptr)


def _segments(first_blocks: Iterable[_Block], storages: Mapping[int, int]) -> Iterator[Segment]:
    for first in first_blocks:
        mapped: list[Block] = []
        block: _Block | None = first
        while block is not None:
            if block.mapped:
                mapped.append(Block(block.ptr, block.size, storages.get(block.ptr) if block.allocated else None))
            elif mapped:
                yield Segment(first.pool.small, first.pool.stream, tuple(mapped))
                mapped = []
            block = block.next
        if mapped:
            yield Segment(first.pool.small, first.pool.stream, tuple(mapped))
