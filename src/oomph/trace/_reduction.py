"""The scratch memory of CUDA's reductions, as `setReduceConfig` in ATen's Reduce.cuh lays them out. No torch.

A reduction over the rows of a wide matrix (the gradient of a bias) is split over many blocks, each of which leaves its
partial sums in global memory: up to hundreds of megabytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ._device import Device

_MAX_THREADS = 512
_WARP = 32
_FEWEST_VALUES, _MOST_VALUES = 16, 256


@dataclass(frozen=True)
class Reduction:
    """A reduction after its dimensions are merged.

    Attributes:
        outputs: number of results.
        inputs: number of values that go into each.
        along_fastest: whether the reduced dimension is the one that is contiguous in memory.
        vector: how many neighbouring outputs a thread can load at once.
        single: whether everything is one dimension.
        accumulator: bytes of a partial result.
    """

    outputs: int
    inputs: int
    along_fastest: bool
    vector: int = 4
    single: bool = False
    accumulator: int = 4


def scratch(reduction: Reduction, device: Device) -> tuple[int, ...]:
    """Sizes of the buffers that the reduction allocates and frees: partial results and semaphores, or nothing."""
    along = reduction.along_fastest
    width_room, height_room = (reduction.inputs, reduction.outputs) if along else (reduction.outputs, reduction.inputs)
    vector = 1 if along else reduction.vector
    if along and reduction.single and width_room > 128:  # noqa: PLR2004  ATen's threshold
        width_room //= 4
    elif not along:
        width_room //= vector
    width, height = _block(width_room, height_room, _MAX_THREADS // vector)

    inputs_step, outputs_step = (width, 1) if along else (1, width)
    values = _up(reduction.inputs, inputs_step)
    across_warps = values >= min(height * 16, _MOST_VALUES)
    if across_warps:
        inputs_step *= height
    else:
        outputs_step *= height
    values = _up(reduction.inputs, inputs_step)

    target = device.processors * (device.threads // (width * height))
    grid = _up(reduction.outputs // vector, outputs_step)
    if not across_warps or values < _MOST_VALUES or grid > target:
        return ()
    blocks = max(min(_up(target, grid), _up(values, _FEWEST_VALUES)), _up(values, _MOST_VALUES))
    if blocks <= 1:
        return ()
    partial = reduction.accumulator * reduction.outputs * blocks
    return (partial if along else partial * width * vector, 4 * grid)


def _block(width_room: int, height_room: int, threads: int) -> tuple[int, int]:
    """Width and height of a thread block."""
    widest, highest = (_power(room) if room < threads else threads for room in (width_room, height_room))
    width = min(widest, _WARP)
    height = min(highest, threads // width)
    return min(widest, threads // height), height


def _power(value: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << max(value.bit_length() - 1, 0)


def _up(value: int, step: int) -> int:
    return -(-value // step)
