"""Which images can be decoded within a budget, from their headers, before anything is allocated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...units import format_size
from .._index import ImageIndex
from .._row import header_of
from ..decode import cost, fitted

_ALIKE = [
    "width", "height", "bands", "flags", "format", "dtype", "orientation", "coefficients", "restart", "block_width",
    "block_height", "compression",
]  # fmt: skip


def within(index: ImageIndex, canvas: tuple[int, int], budget: int, aside: dict[int, str]) -> NDArray[np.int64]:
    """The images that some path decodes to a canvas within a budget; others are noted with the reason."""
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
        size = fitted(header.shown, canvas)
        needed[number] = cost(header, size) + size[0] * size[1] * 3
    over = needed[kind_of] > budget
    for number, kind in zip(usable[over].tolist(), kind_of[over].tolist(), strict=True):
        aside[number] = (
            f"decoding it takes {format_size(int(needed[kind]))}, more than the budget of {format_size(budget)}"
        )
    return usable[~over]
