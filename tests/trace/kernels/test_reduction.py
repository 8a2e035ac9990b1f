"""Scratch memory of reductions, measured on an H200: partial sums, rounded to 512 bytes, and semaphores."""

from __future__ import annotations

import pytest

from oomph.trace import CudaDevice
from oomph.trace.kernels._reduction import ReductionShape, scratch_sizes


@pytest.mark.parametrize(
    ("rows", "columns", "measured"),
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
def test_gradient_of_a_bias_allocates_partial_sums(rows: int, columns: int, measured: int) -> None:
    partial, semaphores = scratch_sizes(ReductionShape(columns, rows, along_fastest=False), CudaDevice())
    assert partial + 512 == measured
    assert 0 < semaphores <= 512


def test_small_reduction_needs_no_scratch() -> None:
    assert scratch_sizes(ReductionShape(768, 64, along_fastest=False), CudaDevice()) == ()
    assert scratch_sizes(ReductionShape(4096, 64, along_fastest=True), CudaDevice()) == ()
