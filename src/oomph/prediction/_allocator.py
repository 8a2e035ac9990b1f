"""Replay of PyTorch's CUDA caching allocator, byte for byte.

The replay follows the allocator's rules. Sizes round up to 512 bytes. Small requests (at most 1 MiB) and large requests
have separate pools, and so does each stream. A request uses the smallest free block that fits, at the lowest address,
and the rest of the block becomes a free block. Adjacent free blocks merge. When the device has no more memory, the
allocator returns its cached memory and retries once. With expandable segments, each pool is one address range that is
filled page by page.

`torch.cuda.memory_allocated` counts whole blocks, which can be larger than the requests they serve. So even `allocated`
needs the replay.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from ..settings import AllocatorConfig
from ..units import MIB

_MIN_BLOCK = 512
_MAX_SMALL = MIB  # the largest request of the small pool, and the smallest rest that the large pool splits off
_SMALL_SEGMENT = 2 * MIB
_LARGE_SEGMENT = 20 * MIB
_MIN_DEDICATED = 10 * MIB  # larger requests get a segment of their size
_DEDICATED_STEP = 2 * MIB
_UNLIMITED = 1 << 62
_ADDRESS_RANGE = _LARGE_SEGMENT << 20  # of an expandable segment: beyond any memory, in whole pages of both pools


class OutOfMemory(Exception):
    """A replayed request does not fit under the cap, even after all cached memory was returned."""


class _Block:
    """Part of a segment: allocated, free, or (in an expandable segment) not mapped to memory."""

    __slots__ = ("allocated", "mapped", "next", "pool", "prev", "ptr", "size")

    def __init__(self, ptr: int, size: int, pool: _Pool) -> None:
        self.ptr, self.size, self.pool = ptr, size, pool
        self.allocated, self.mapped = False, True
        self.prev: _Block | None = None
        self.next: _Block | None = None


class _Pool:
    """Free blocks of a stream, ordered by size, then by address."""

    def __init__(self, stream: int, *, small: bool) -> None:
        self.stream, self.small = stream, small
        self.page = _SMALL_SEGMENT if small else _LARGE_SEGMENT
        self.keys: list[tuple[int, int]] = []
        self.blocks: dict[int, _Block] = {}
        self.unmapped: list[_Block] = []  # of expandable segments

    def insert(self, block: _Block) -> None:
        insort(self.keys, (block.size, block.ptr))
        self.blocks[block.ptr] = block

    def remove(self, block: _Block) -> None:
        del self.keys[bisect_left(self.keys, (block.size, block.ptr))]
        del self.blocks[block.ptr]

    def at(self, index: int) -> _Block | None:
        return self.blocks[self.keys[index][1]] if index < len(self.keys) else None


def round_size(size: int) -> int:
    """Return the size of the block that a request is rounded up to."""
    return max(-(-size // _MIN_BLOCK) * _MIN_BLOCK, _MIN_BLOCK)


def segment_size(size: int) -> int:
    """Return the size of the segment that the device allocates for a rounded request without a free block."""
    if size <= _MAX_SMALL:
        return _SMALL_SEGMENT
    return _LARGE_SEGMENT if size < _MIN_DEDICATED else -(-size // _DEDICATED_STEP) * _DEDICATED_STEP


class Allocator:
    """The allocator of one device; `allocated` and `reserved` are current bytes, `peak_…` their maxima."""

    def __init__(self, config: AllocatorConfig, addresses: list[int] | None = None) -> None:
        """Create an empty allocator.

        Args:
            config: the allocator's options and cap.
            addresses: the recorded addresses of new segments, in order. Among free blocks of equal size the lowest
                address is used first, so an exact replay needs them.
        """
        self.config = config
        self._pools: dict[int, tuple[_Pool, _Pool]] = {}
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = self.retries = 0
        self._cap = _UNLIMITED if config.cap is None else config.cap
        self._max_split = _UNLIMITED if config.max_split is None else config.max_split
        self._addresses = iter(addresses or ())
        self._next_address = _ADDRESS_RANGE

    @property
    def pools(self) -> tuple[_Pool, ...]:
        """The pools of all streams."""
        return tuple(pool for pools in self._pools.values() for pool in pools)

    def malloc(self, size: int, stream: int = 0) -> _Block:
        """Allocate a block that is used on a stream.

        Raises:
            OutOfMemory: the request does not fit under the cap.
        """
        rounded = round_size(size)
        if stream not in self._pools:
            self._pools[stream] = _Pool(stream, small=True), _Pool(stream, small=False)
        pool = self._pools[stream][rounded > _MAX_SMALL]
        block = self._find(pool, rounded) or self._grow(pool, rounded)
        if self._should_split(block, rounded):
            self._split(block, rounded)
        block.allocated = True
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: _Block) -> None:
        """Free a block and merge it with free neighbors."""
        self.allocated -= block.size
        block.allocated = False
        self._merge(block, block.prev)
        self._merge(block, block.next)
        block.pool.insert(block)

    def empty_cache(self) -> None:
        """Return cached memory to the device: all segments, or pages of expandable segments, that are entirely free."""
        for pool in sorted(self.pools, key=lambda pool: pool.small):
            for block in [pool.blocks[ptr] for _, ptr in pool.keys]:
                if self.config.expandable:
                    self._unmap(block)
                elif block.prev is None and block.next is None:
                    self._release(block)

    def _find(self, pool: _Pool, size: int) -> _Block | None:
        index = bisect_left(pool.keys, (size, -1))
        block = pool.at(index)
        if block is None:
            return None
        if self.config.expandable:
            # A block next to unmapped addresses is ranked by the size it could grow to.
            while (
                self._can_expand(block)
                and (other := pool.at(index + 1))
                and self._expanded_size(other) < self._expanded_size(block)
            ):
                index, block = index + 1, other
        if size < self._max_split <= block.size:
            return None
        if size >= self._max_split and block.size >= size + self.config.non_split_rounding:
            return None
        pool.remove(block)
        return block

    @staticmethod
    def _can_expand(block: _Block) -> bool:
        return block.next is not None and not block.next.mapped

    def _expanded_size(self, block: _Block) -> int:
        return block.size + (block.next.size if block.next is not None and not block.next.mapped else 0)

    def _grow(self, pool: _Pool, size: int) -> _Block:
        block = self._from_device(pool, size)
        if block is None and self._max_split != _UNLIMITED and self._release_oversize(pool, size):
            block = self._from_device(pool, size)
        if block is None:
            self.empty_cache()
            self.retries += 1
            block = self._from_device(pool, size)
        if block is None:
            raise OutOfMemory(size)
        return block

    def _from_device(self, pool: _Pool, size: int) -> _Block | None:
        segment = segment_size(size)
        if self.reserved + segment > self._cap:
            return None
        if self.config.expandable:
            return self._expand(pool, size)
        block = _Block(self._segment_address(segment), segment, pool)
        self._reserve(pool, block.ptr, segment)
        return block

    def _segment_address(self, size: int) -> int:
        """Return the address of a new segment: the recorded one, or one above all others."""
        address = next(self._addresses, None)
        if address is None:
            address = self._next_address
        self._next_address = max(self._next_address, address + size)
        return address

    def _reserve(self, pool: _Pool, address: int, size: int) -> None:
        """Count memory that the device gave."""
        del pool, address  # for subclasses
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _return(self, pool: _Pool, address: int, size: int) -> None:
        """Count memory that the device got back."""
        del pool, address  # for subclasses
        self.reserved -= size

    def _release(self, block: _Block) -> None:
        block.pool.remove(block)
        self._return(block.pool, block.ptr, block.size)

    def _release_oversize(self, pool: _Pool, size: int) -> bool:
        """Return one sufficient oversize block of a stream to the device, or the largest ones until they suffice."""
        required = max(size, self._max_split)
        oversize = [pool.blocks[ptr] for block_size, ptr in pool.keys if block_size >= self._max_split]
        sufficient = [block for block in oversize if block.size >= required]
        if sufficient:
            self._release(sufficient[0])
            return True
        total = 0
        for block in reversed(oversize):
            if total >= required:
                break
            total += block.size
            self._release(block)
        return total >= required

    def _should_split(self, block: _Block, size: int) -> bool:
        rest = block.size - size
        if block.pool.small or self.config.expandable:
            return rest >= _MIN_BLOCK
        return size < self._max_split and rest > _MAX_SMALL

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.ptr + size, block.size - size, block.pool)
        block.size = size
        self._splice(rest, block, block.next)
        block.pool.insert(rest)

    @staticmethod
    def _splice(block: _Block, before: _Block | None, after: _Block | None) -> None:
        block.prev, block.next = before, after
        if before is not None:
            before.next = block
        if after is not None:
            after.prev = block

    def _merge(self, block: _Block, other: _Block | None) -> None:
        """Merge a free neighbor into a block if both are mapped or both are not."""
        if other is None or other.allocated or other.mapped != block.mapped:
            return
        if other.mapped:
            block.pool.remove(other)
        else:
            block.pool.unmapped.remove(other)
        if other is block.prev:
            block.ptr = other.ptr
            block.prev = other.prev
            if block.prev is not None:
                block.prev.next = block
        else:
            block.next = other.next
            if block.next is not None:
                block.next.prev = block
        block.size += other.size

    def _expand(self, pool: _Pool, size: int) -> _Block:
        """Map the pages that a request needs in a free address range."""
        block = self._find_range(pool, size)
        if not block.mapped:
            self._map(block, min(block.size, size))
        while block.size < size:
            after = block.next
            assert after is not None  # noqa: S101  the range is long enough
            self._map(after, min(size - block.size, after.size))
            block = after
        pool.remove(block)
        return block

    def _find_range(self, pool: _Pool, size: int) -> _Block:
        """Return the first block of a free address range, mapped or not, that is long enough."""
        for unmapped in sorted(pool.unmapped, key=lambda block: (block.size, block.ptr)):
            before = unmapped.prev
            start = before if before is not None and not before.allocated else unmapped
            if self._free_length(start, size) >= size:
                return start
        block = _Block(self._next_address, _ADDRESS_RANGE, pool)
        self._next_address += _ADDRESS_RANGE
        block.mapped = False
        pool.unmapped.append(block)
        return block

    @staticmethod
    def _free_length(start: _Block, limit: int) -> int:
        """Return the length of the free address range from a block on; counting stops at `limit`."""
        length, block = 0, start
        while length < limit and not block.allocated:
            length += block.size
            if block.next is None:
                break
            block = block.next
        return length

    def _map(self, block: _Block, size: int) -> None:
        pool, address = block.pool, block.ptr
        mapped_size = -(-size // pool.page) * pool.page
        pool.unmapped.remove(block)
        block.mapped = True
        if mapped_size < block.size:
            rest = _Block(block.ptr + mapped_size, block.size - mapped_size, pool)
            rest.mapped = False
            self._splice(rest, block, block.next)
            pool.unmapped.append(rest)
            block.size = mapped_size
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.insert(block)
        self._reserve(pool, address, mapped_size)

    def _unmap(self, block: _Block) -> None:
        pool = block.pool
        start = -(-block.ptr // pool.page) * pool.page
        end = (block.ptr + block.size) // pool.page * pool.page
        if start >= end:
            return
        pool.remove(block)
        if start > block.ptr:
            before = _Block(block.ptr, start - block.ptr, pool)
            self._splice(before, block.prev, block)
            pool.insert(before)
        if end < block.ptr + block.size:
            after = _Block(end, block.ptr + block.size - end, pool)
            self._splice(after, block, block.next)
            pool.insert(after)
        block.ptr, block.size, block.mapped = start, end - start, False
        self._return(pool, start, end - start)
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.unmapped.append(block)
