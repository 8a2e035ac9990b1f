"""A replay of the C library's heap, for training on the processor: resident memory is more than what is in use.

torch asks glibc for each tensor, aligned to 64 bytes. Requests above a threshold get pages of their own, which go back
when they are freed; but the first such free raises the threshold to that size (up to 32 MiB), and from then on blocks
come from one heap: the smallest free piece that is large enough, else the top. Freed neighbours merge, and only the top
is ever given back. Free pieces in the middle stay resident. Small objects (autograd nodes, Python's own) settle in the
gaps between aligned blocks; most leave with the block, some stay and keep freed neighbours from merging.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from ..trace import Trace
from ..units import KIB, MIB

_START = 128 * KIB  # the threshold at first, and what the top keeps when it is trimmed
_HIGHEST = 32 * MIB
_PAGE = 4 * KIB
_ALIGN = 64
_SPARE = 96  # what an aligned request asks for beyond its size
_LEAST = 32  # the smallest chunk
_SETTLED = 6  # one gap in so many keeps its small object for good: seen on eleven networks (docs/accuracy.md)


class Heap:
    """The main heap of a process that has just begun to train."""

    def __init__(self) -> None:
        self.threshold, self.trim = _START, _START
        self.end = self.top = self.mapped = self.peak = 0
        self._sizes: list[tuple[int, int]] = []  # free pieces as (size, address), smallest first
        self._begins: dict[int, int] = {}  # the same by address
        self._ends: dict[int, int] = {}
        self._gaps = 0
        self._blocks: dict[int, tuple[int, int]] = {}  # address (or -1 for pages of its own) and size, by key

    @property
    def resident(self) -> int:
        """Bytes that the heap and single mappings hold."""
        return self.end + self.mapped

    def malloc(self, key: int, size: int) -> None:
        """Take a block."""
        own = max(_up(size + 8, 16), _LEAST)
        asked = own + _SPARE
        place = bisect_left(self._sizes, (asked, 0))
        if place < len(self._sizes):
            free, address = self._sizes[place]
            self._take_out(address)
            self._cut(key, address, free, own)
        elif self.end - self.top >= asked + _LEAST:
            self._from_top(key, own)
        elif asked >= self.threshold:
            pages = _up(asked + 8, _PAGE)
            self._blocks[key] = (-1, pages)
            self.mapped += pages
        else:
            self.end += _up(asked + _START + _LEAST - (self.end - self.top), _PAGE)
            self._from_top(key, own)
        self.peak = max(self.peak, self.resident)

    def free(self, key: int) -> None:
        """Give a block back."""
        address, size = self._blocks.pop(key)
        if address < 0:
            self.mapped -= size
            if self.threshold < size <= _HIGHEST:
                self.threshold, self.trim = size, 2 * size
            return
        if address in self._ends:
            before = self._ends[address]
            size += self._take_out(before)
            address = before
        if address + size in self._begins:
            size += self._take_out(address + size)
        if address + size == self.top:
            self.top = address
            self._trim()
        else:
            self._put_in(address, size)

    def _trim(self) -> None:
        spare = self.end - self.top
        if spare >= self.trim:
            self.end -= max(spare - _LEAST - _START, 0) // _PAGE * _PAGE

    def _from_top(self, key: int, size: int) -> None:
        used = _gap(self.top) + size
        self._own(key, self.top, used)
        self.top += used

    def _cut(self, key: int, address: int, free: int, size: int) -> None:
        used = _gap(address) + size
        if free - used >= _LEAST:
            self._put_in(address + used, free - used)
        else:
            used = free
        self._own(key, address, used)

    def _own(self, key: int, address: int, used: int) -> None:
        """Note a block, with the gap before it unless somebody has settled there."""
        gap = _gap(address)
        self._gaps += gap > 0
        if gap and self._gaps % _SETTLED == 0:
            address, used = address + gap, used - gap
        self._blocks[key] = (address, used)

    def _put_in(self, address: int, size: int) -> None:
        self._begins[address], self._ends[address + size] = size, address
        insort(self._sizes, (size, address))

    def _take_out(self, address: int) -> int:
        size = self._begins.pop(address)
        del self._ends[address + size]
        self._sizes.pop(bisect_left(self._sizes, (size, address)))
        return size


def heap_peak(trace: Trace) -> int:
    """The most that the heap holds resident over the training steps of a trace."""
    heap = Heap()
    for event in trace.events[: trace.trained]:
        if event > 0:
            heap.malloc(event, trace.storages[event - 1].size)
        else:
            heap.free(-event)
    return heap.peak


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _gap(address: int) -> int:
    """Bytes between a chunk and the aligned block inside of it; at least a chunk, or nothing."""
    gap = -(address + 16) % _ALIGN
    return gap if gap == 0 or gap >= _LEAST else gap + _ALIGN
