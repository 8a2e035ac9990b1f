"""A replay of PyTorch's CUDA caching allocator, byte for byte, for one stream.

It follows the allocator's own rules: sizes round up to 512 bytes; small requests (at most 1 MiB) and large ones live in
pools of their own; a request takes the free block that fits best, the lowest address first; what is left over becomes
a free block of its own; freed neighbours merge; when the device has no more to give, cached memory is returned and the
request tried once more. With expandable segments each pool is one range of addresses, filled page by page.

What `torch.cuda.memory_allocated` counts are whole blocks, which can be larger than the requests they serve, so even
`allocated` needs the replay.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from ..units import MIB

_MIN_BLOCK = 512
_SMALL = MIB  # the largest request of the small pool, and the smallest rest that the large pool splits off
_SMALL_SEGMENT = 2 * MIB
_LARGE_SEGMENT = 20 * MIB
_MIN_LARGE = 10 * MIB  # requests from here on get a segment of their own size
_ROUND_LARGE = 2 * MIB
_NEVER = 1 << 62
_RANGE = _LARGE_SEGMENT << 20  # addresses of an expandable segment: far more than memory, and whole pages of both sizes


class OutOfMemory(Exception):
    """The replayed request does not fit under the cap, even after everything cached was returned."""


@dataclass(frozen=True)
class Rules:
    """How the allocator is set up.

    Attributes:
        expandable: `expandable_segments:True`.
        cap: bytes that may be reserved, as `set_per_process_memory_fraction` limits them.
        max_split: `max_split_size_mb` in bytes: larger blocks are never split.
        non_split_rounding: `max_non_split_rounding_mb` in bytes: how much larger a block an oversize request takes.
    """

    expandable: bool = True
    cap: int = _NEVER
    max_split: int = _NEVER
    non_split_rounding: int = 20 * MIB


class _Block:
    """A piece of a segment: allocated, free, or (in an expandable segment) not backed by memory."""

    __slots__ = ("allocated", "mapped", "next", "pool", "prev", "ptr", "size")

    def __init__(self, ptr: int, size: int, pool: _Pool) -> None:
        self.ptr, self.size, self.pool = ptr, size, pool
        self.allocated, self.mapped = False, True
        self.prev: _Block | None = None
        self.next: _Block | None = None


class _Pool:
    """Free blocks, ordered by size and then address."""

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self.page = _SMALL_SEGMENT if small else _LARGE_SEGMENT
        self.keys: list[tuple[int, int]] = []
        self.blocks: dict[int, _Block] = {}
        self.unmapped: list[_Block] = []  # in an expandable segment, by address

    def insert(self, block: _Block) -> None:
        insort(self.keys, (block.size, block.ptr))
        self.blocks[block.ptr] = block

    def remove(self, block: _Block) -> None:
        del self.keys[bisect_left(self.keys, (block.size, block.ptr))]
        del self.blocks[block.ptr]

    def at(self, index: int) -> _Block | None:
        return self.blocks[self.keys[index][1]] if index < len(self.keys) else None


def round_size(size: int) -> int:
    """What a request is rounded up to."""
    return max(-(-size // _MIN_BLOCK) * _MIN_BLOCK, _MIN_BLOCK)


def segment_size(size: int) -> int:
    """What is asked of the device for a rounded request that no free block serves."""
    if size <= _SMALL:
        return _SMALL_SEGMENT
    return _LARGE_SEGMENT if size < _MIN_LARGE else -(-size // _ROUND_LARGE) * _ROUND_LARGE


class Allocator:
    """One device's allocator; `allocated` and `reserved` are current bytes, the `peak_` ones their maxima."""

    def __init__(self, rules: Rules | None = None, addresses: list[int] | None = None) -> None:
        """Start empty.

        Args:
            rules: how the allocator is set up.
            addresses: where the device put each new segment, in order, where a recording knows it; ties between
                equally large free blocks depend on it.
        """
        self.rules = rules or Rules()
        self.small, self.large = _Pool(small=True), _Pool(small=False)
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = self.retries = 0
        self._addresses = iter(addresses or ())
        self._top = _RANGE

    def malloc(self, size: int) -> _Block:
        """Serve a request.

        Raises:
            OutOfMemory: it does not fit under the cap.
        """
        rounded = round_size(size)
        pool = self.small if rounded <= _SMALL else self.large
        block = self._find(pool, rounded) or self._grow(pool, rounded)
        if self._should_split(block, rounded):
            self._split(block, rounded)
        block.allocated = True
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: _Block) -> None:
        """Take a block back and merge it with free neighbours."""
        self.allocated -= block.size
        block.allocated = False
        self._merge(block, block.prev)
        self._merge(block, block.next)
        block.pool.insert(block)

    def empty_cache(self) -> None:
        """Return everything cached to the device, as far as whole segments or pages are free."""
        for pool in (self.large, self.small):
            for block in [pool.blocks[ptr] for _, ptr in pool.keys]:
                if self.rules.expandable:
                    self._unmap(block)
                elif block.prev is None and block.next is None:
                    self._release(block)

    def _find(self, pool: _Pool, size: int) -> _Block | None:
        index = bisect_left(pool.keys, (size, -1))
        block = pool.at(index)
        if block is None:
            return None
        if self.rules.expandable:
            # A block that borders on unbacked addresses counts as large as it could grow: others go first.
            while self._can_expand(block) and (other := pool.at(index + 1)) and self._reach(other) < self._reach(block):
                index, block = index + 1, other
        oversize = block.size >= self.rules.max_split
        if size < self.rules.max_split and oversize:
            return None
        if size >= self.rules.max_split and block.size >= size + self.rules.non_split_rounding:
            return None
        pool.remove(block)
        return block

    @staticmethod
    def _can_expand(block: _Block) -> bool:
        return block.next is not None and not block.next.mapped

    def _reach(self, block: _Block) -> int:
        return block.size + (block.next.size if block.next is not None and not block.next.mapped else 0)

    def _grow(self, pool: _Pool, size: int) -> _Block:
        block = self._from_device(pool, size)
        if block is None and self.rules.max_split != _NEVER and self._release_oversize(size):
            block = self._from_device(pool, size)
        if block is None:
            self.empty_cache()
            self.retries += 1
            block = self._from_device(pool, size)
        if block is None:
            raise OutOfMemory(size)
        return block

    def _from_device(self, pool: _Pool, size: int) -> _Block | None:
        wanted = segment_size(size)
        if self.reserved + wanted > self.rules.cap:
            return None
        if self.rules.expandable:
            return self._expand(pool, size)
        block = _Block(self._place(wanted), wanted, pool)
        self._reserve(wanted)
        return block

    def _place(self, size: int) -> int:
        """Where the device puts a new segment: as recorded, or above all others."""
        address = next(self._addresses, None)
        if address is None:
            address = self._top
        self._top = max(self._top, address + size)
        return address

    def _reserve(self, size: int) -> None:
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _release(self, block: _Block) -> None:
        block.pool.remove(block)
        self.reserved -= block.size

    def _release_oversize(self, size: int) -> bool:
        """With a split limit: return one oversize block that would do, or the largest ones until it is enough."""
        floor = max(size, self.rules.max_split)
        large = [self.large.blocks[ptr] for block_size, ptr in self.large.keys if block_size >= self.rules.max_split]
        enough = [block for block in large if block.size >= floor]
        if enough:
            self._release(enough[0])
            return True
        total = 0
        for block in reversed(large):
            if total >= floor:
                break
            total += block.size
            self._release(block)
        return total >= floor

    def _should_split(self, block: _Block, size: int) -> bool:
        rest = block.size - size
        if block.pool.small or self.rules.expandable:
            return rest >= _MIN_BLOCK
        return size < self.rules.max_split and rest > _SMALL

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
        """Swallow a free neighbour of the same kind, backed or not."""
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
        """Back as many pages at the end of a free stretch as the request needs."""
        block = self._stretch(pool, size)
        if not block.mapped:
            self._map(block, min(block.size, size))
        while block.size < size:
            after = block.next
            assert after is not None  # noqa: S101  the stretch was found to be long enough
            self._map(after, min(size - block.size, after.size))
            block = after
        pool.remove(block)
        return block

    def _stretch(self, pool: _Pool, size: int) -> _Block:
        """The first stretch of free addresses, backed or not, that is long enough."""
        for unmapped in sorted(pool.unmapped, key=lambda block: (block.size, block.ptr)):
            before = unmapped.prev
            start = before if before is not None and not before.allocated else unmapped
            if self._length(start, size) >= size:
                return start
        block = _Block(self._top, _RANGE, pool)
        self._top += _RANGE
        block.mapped = False
        pool.unmapped.append(block)
        return block

    @staticmethod
    def _length(start: _Block, enough: int) -> int:
        """How far free addresses reach from a block on, counted until it is enough."""
        length, block = 0, start
        while length < enough and not block.allocated:
            length += block.size
            if block.next is None:
                break
            block = block.next
        return length

    def _map(self, block: _Block, size: int) -> None:
        pool = block.pool
        backed = -(-size // pool.page) * pool.page
        pool.unmapped.remove(block)
        block.mapped = True
        if backed < block.size:
            rest = _Block(block.ptr + backed, block.size - backed, pool)
            rest.mapped = False
            self._splice(rest, block, block.next)
            pool.unmapped.append(rest)
            block.size = backed
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.insert(block)
        self._reserve(backed)

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
        self.reserved -= end - start
        self._merge(block, block.prev)
        self._merge(block, block.next)
        pool.unmapped.append(block)
