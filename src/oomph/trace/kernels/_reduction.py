"""Scratch memory of CUDA reductions, following `setReduceConfig` in ATen's Reduce.cuh. No torch.

A reduction over the rows of a wide matrix (the gradient of a bias) is split across many thread blocks. Each block
writes its partial sums to global memory: up to hundreds of megabytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from .._device import CudaDevice

_MAX_THREADS = 512
_WARP = 32
_MIN_VALUES_PER_THREAD, _MAX_VALUES_PER_THREAD = 16, 256


@dataclass(frozen=True)
class ReductionShape:
    """The shape of a reduction after its dimensions are merged.

    Attributes:
        outputs: number of results.
        inputs: number of values reduced into each result.
        along_fastest: True if the reduced dimension is the contiguous one.
        vector: number of adjacent outputs that a thread loads at once.
        single: True if everything is one dimension.
        accumulator: bytes of a partial result.
    """

    outputs: int
    inputs: int
    along_fastest: bool
    vector: int = 4
    single: bool = False
    accumulator: int = 4


def scratch_sizes(reduction: ReductionShape, device: CudaDevice) -> tuple[int, ...]:
    """Return the sizes of the temporary buffers: partial results and semaphores, or none."""
    along = reduction.along_fastest
    max_width, max_height = (reduction.inputs, reduction.outputs) if along else (reduction.outputs, reduction.inputs)
    vector = 1 if along else reduction.vector
    if along and reduction.single and max_width > 128:  # noqa: PLR2004  ATen's threshold
        max_width //= 4
    elif not along:
        max_width //= vector
    width, height = _block_shape(max_width, max_height, _MAX_THREADS // vector)

    inputs_step, outputs_step = (width, 1) if along else (1, width)
    values = _ceil_div(reduction.inputs, inputs_step)
    across_warps = values >= min(height * 16, _MAX_VALUES_PER_THREAD)
    if across_warps:
        inputs_step *= height
    else:
        outputs_step *= height
    values = _ceil_div(reduction.inputs, inputs_step)

    target = device.processors * (device.threads // (width * height))
    grid = _ceil_div(reduction.outputs // vector, outputs_step)
    if not across_warps or values < _MAX_VALUES_PER_THREAD or grid > target:
        return ()
    blocks = max(
        min(_ceil_div(target, grid), _ceil_div(values, _MIN_VALUES_PER_THREAD)),
        _ceil_div(values, _MAX_VALUES_PER_THREAD),
    )
    if blocks <= 1:
        return ()
    partial = reduction.accumulator * reduction.outputs * blocks
    return (partial if along else partial * width * vector, 4 * grid)


def _block_shape(max_width: int, max_height: int, threads: int) -> tuple[int, int]:
    """Return width and height of a thread block."""
    widest, highest = (_floor_power(size) if size < threads else threads for size in (max_width, max_height))
    width = min(widest, _WARP)
    height = min(highest, threads // width)
    return min(widest, threads // height), height


def _floor_power(value: int) -> int:
    """Return the largest power of two that is at most `value`."""
    return 1 << max(value.bit_length() - 1, 0)


def _ceil_div(value: int, step: int) -> int:
    return -(-value // step)
