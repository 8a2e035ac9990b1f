"""Scratch memory of reductions as it was seen on an H200: partial sums, rounded to 512 bytes, and semaphores."""

from __future__ import annotations

import pytest

from oomph.trace import Device
from oomph.trace._reduction import Reduction, scratch


@pytest.mark.parametrize(
    ("rows", "columns", "seen"),
    [
        (4096, 768, 25_166_336),
        (4096, 3072, 100_663_808),
        (1568, 768, 9_830_912),
        (25088, 768, 138_412_544),
        (100352, 384, 138_412_544),
        (100352, 96, 19_268_096),
        (100352, 288, 103_809_536),
        (6272, 384, 19_268_096),
        (25088, 576, 115_606_016),
        (2048, 2304, 37_749_248),
    ],
)
def test_the_gradient_of_a_bias_leaves_partial_sums(rows: int, columns: int, seen: int) -> None:
    partial, semaphores = scratch(Reduction(columns, rows, along_fastest=False), Device())
    assert partial + 512 == seen
    assert 0 < semaphores <= 512


def test_a_small_reduction_needs_nothing() -> None:
    assert scratch(Reduction(768, 64, along_fastest=False), Device()) == ()
    assert scratch(Reduction(4096, 64, along_fastest=True), Device()) == ()
