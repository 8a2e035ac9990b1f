"""Replay of glibc's heap for training on the CPU, where RSS exceeds the memory in use.

torch allocates each tensor with glibc, aligned to 64 bytes. Requests above a threshold are mapped separately and
unmapped when freed. The first such free raises the threshold to its size (up to 32 MiB); from then on, blocks of that
size come from one heap: the smallest free chunk that is large enough, else the top. Adjacent free chunks merge. Only
the top returns to the kernel; free chunks in the middle stay resident. Small objects (autograd nodes, Python objects)
fill the gaps between aligned blocks. Most are freed with the block; some stay and keep free neighbors from merging.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from ..trace import Trace
from ..units import KIB, MIB

_INITIAL_THRESHOLD = 128 * KIB  # also what remains of the top after trimming
_MAX_THRESHOLD = 32 * MIB
_PAGE = 4 * KIB
_ALIGN = 64
_ALIGN_OVERHEAD = 96  # bytes that an aligned request adds
_MIN_CHUNK = 32
_OCCUPIED_GAP_INTERVAL = 6  # every sixth gap keeps its small object for good: fitted to eleven networks


class Heap:
    """The main heap of a process that starts to train."""

    def __init__(self) -> None:
        self.mmap_threshold, self.trim_threshold = _INITIAL_THRESHOLD, _INITIAL_THRESHOLD
        self.end = self.top = self.mapped = self.peak = 0
        self._free_sizes: list[tuple[int, int]] = []  # free chunks as (size, address), smallest first
        self._free_starts: dict[int, int] = {}  # start address of a free chunk to its size
        self._free_ends: dict[int, int] = {}  # end address of a free chunk to its start
        self._gaps = 0
        self._blocks: dict[int, tuple[int, int]] = {}  # key to (address, or -1 if mapped separately, and size)

    @property
    def resident(self) -> int:
        """Bytes of the heap and of separate mappings."""
        return self.end + self.mapped

    def malloc(self, key: int, size: int) -> None:
        """Allocate a block under a key."""
        chunk = max(_round_up(size + 8, 16), _MIN_CHUNK)
        requested = chunk + _ALIGN_OVERHEAD
        position = bisect_left(self._free_sizes, (requested, 0))
        if position < len(self._free_sizes):
            free_size, address = self._free_sizes[position]
            self._remove_free(address)
            self._split_free(key, address, free_size, chunk)
        elif self.end - self.top >= requested + _MIN_CHUNK:
            self._take_from_top(key, chunk)
        elif requested >= self.mmap_threshold:
            pages = _round_up(requested + 8, _PAGE)
            self._blocks[key] = (-1, pages)
            self.mapped += pages
        else:
            self.end += _round_up(requested + _INITIAL_THRESHOLD + _MIN_CHUNK - (self.end - self.top), _PAGE)
            self._take_from_top(key, chunk)
        self.peak = max(self.peak, self.resident)

    def free(self, key: int) -> None:
        """Free the block of a key."""
        address, size = self._blocks.pop(key)
        if address < 0:
            self.mapped -= size
            if self.mmap_threshold < size <= _MAX_THRESHOLD:
                self.mmap_threshold, self.trim_threshold = size, 2 * size
            return
        if address in self._free_ends:
            previous = self._free_ends[address]
            size += self._remove_free(previous)
            address = previous
        if address + size in self._free_starts:
            size += self._remove_free(address + size)
        if address + size == self.top:
            self.top = address
            self._trim()
        else:
            self._add_free(address, size)

    def _trim(self) -> None:
        spare = self.end - self.top
        if spare >= self.trim_threshold:
            self.end -= max(spare - _MIN_CHUNK - _INITIAL_THRESHOLD, 0) // _PAGE * _PAGE

    def _take_from_top(self, key: int, size: int) -> None:
        used = _gap(self.top) + size
        self._add_block(key, self.top, used)
        self.top += used

    def _split_free(self, key: int, address: int, free_size: int, size: int) -> None:
        used = _gap(address) + size
        if free_size - used >= _MIN_CHUNK:
            self._add_free(address + used, free_size - used)
        else:
            used = free_size
        self._add_block(key, address, used)

    def _add_block(self, key: int, address: int, used: int) -> None:
        """Add a block with the gap before it, unless a small object occupies the gap."""
        gap = _gap(address)
        self._gaps += gap > 0
        if gap and self._gaps % _OCCUPIED_GAP_INTERVAL == 0:
            address, used = address + gap, used - gap
        self._blocks[key] = (address, used)

    def _add_free(self, address: int, size: int) -> None:
        self._free_starts[address], self._free_ends[address + size] = size, address
        insort(self._free_sizes, (size, address))

    def _remove_free(self, address: int) -> int:
        size = self._free_starts.pop(address)
        del self._free_ends[address + size]
        self._free_sizes.pop(bisect_left(self._free_sizes, (size, address)))
        return size


def heap_peak(trace: Trace) -> int:
    """Return the maximum of resident bytes over the training steps of a trace."""
    heap = Heap()
    for event in trace.events[: trace.training_events]:
        if event > 0:
            heap.malloc(event, trace.storages[event - 1].size)
        else:
            heap.free(-event)
    return heap.peak


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def _gap(address: int) -> int:
    """Return the bytes between a chunk and the aligned block inside it: none, or at least a whole chunk."""
    gap = -(address + 16) % _ALIGN
    return gap if gap == 0 or gap >= _MIN_CHUNK else gap + _ALIGN
