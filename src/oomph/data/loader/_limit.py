"""Which images can be decoded within a budget, from their headers, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...units import MIB, format_size
from .._index import ImageIndex
from .._row import header_of
from ..decoding import decode_cost, fit_size

_ALIKE = [
    "width", "height", "bands", "flags", "format", "dtype", "orientation", "coefficients", "restart", "block_width",
    "block_height", "compression",
]  # fmt: skip


_PER_THREAD = 4 * MIB  # what the C library keeps of a thread's memory even when it is asked to give it back
_USUAL = 90  # percentile of the images' bytes that threads are counted by


@dataclass(frozen=True, eq=False)
class Limits:
    """What a budget allows.

    Attributes:
        samples: images that some path decodes within it.
        aside: the others, with the reason.
        threads: threads that it keeps busy.
        admitted: bytes that may be decoding at once; the threads' own are taken off.
        alone: bytes that one image may take, when no other is decoded; the same whatever the number of threads.
        largest: bytes that the usable image that takes most does take, a thread's own included.
    """

    samples: NDArray[np.int64]
    skipped: dict[int, str]
    threads: int
    admitted: int
    alone: int
    largest: int


def limits(index: ImageIndex, canvas: tuple[int, int], budget: int, threads: int) -> Limits:
    """Share out a budget from the headers of all images."""
    usable, needed = index.usable, _needed(index, canvas)
    usual = int(np.percentile(needed, _USUAL)) if len(needed) else 1
    # More threads than can be let in would only keep memory of their own.
    threads = max(min(threads, budget // (usual + _PER_THREAD)), 1)
    admitted = max(budget - threads * _PER_THREAD, budget // 2)
    alone = max(budget - _PER_THREAD, budget // 2)
    over = needed > alone
    skipped = {
        number: f"decoding it takes {format_size(size)}, more than the {format_size(alone)} that the budget leaves"
        for number, size in zip(usable[over].tolist(), needed[over].tolist(), strict=True)
    }
    largest = int(needed[~over].max(initial=0)) + _PER_THREAD
    return Limits(usable[~over], skipped, threads, admitted, alone, largest)


def _needed(index: ImageIndex, canvas: tuple[int, int]) -> NDArray[np.int64]:
    """Bytes that decoding takes, for each usable image."""
    usable = index.usable
    rows = index.records[usable]
    # Millions of images come in few kinds; the largest file stands for all of its kind.
    kinds, kind_of = np.unique(rows[_ALIKE], return_inverse=True)
    largest = np.zeros(len(kinds), np.int64)
    np.maximum.at(largest, kind_of, rows["size"])
    needed = np.empty(len(kinds), np.int64)
    for number in range(len(kinds)):
        row = rows[int(np.flatnonzero((kind_of == number) & (rows["size"] == largest[number]))[0])]
        header = header_of(row)
        size = fit_size(header.shown, canvas)
        needed[number] = decode_cost(header, size) + size[0] * size[1] * 3
    return np.asarray(needed[kind_of], np.int64)
