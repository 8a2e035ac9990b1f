"""Replay of a trace through the allocator: allocated and reserved peaks, and the smallest sufficient cap."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..settings import AllocatorConfig
from ..trace import Trace
from ..units import MIB
from ._allocator import Allocator, OutOfMemory

_CAP_STEP = 2 * MIB  # the driver's granularity: a cap between two multiples acts like the lower one


@dataclass(frozen=True)
class Replay:
    """Result of a replay.

    Attributes:
        allocated: the peak of allocated bytes.
        reserved: the peak of reserved bytes.
        peak_event: index of the event at the peak of allocated bytes.
        retries: how often the allocator returned all cached memory to serve a request.
        refused: number of optional workspaces that did not fit.
    """

    allocated: int
    reserved: int
    peak_event: int
    retries: int
    refused: int


def replay(trace: Trace, config: AllocatorConfig) -> Replay:
    """Replay the training steps of a trace.

    Raises:
        OutOfMemory: they do not fit under the cap.
    """
    allocator = Allocator(config)
    blocks = {}
    peak = peak_event = refused = 0
    storages = trace.storages
    for position, event in enumerate(trace.events[: trace.training_events]):
        if event > 0:
            storage = storages[event - 1]
            try:
                blocks[event] = allocator.malloc(storage.size, storage.stream)
            except OutOfMemory:
                if not storage.optional:
                    raise
                refused += 1  # cuDNN chooses an algorithm with a smaller workspace
                continue
            if allocator.allocated > peak:
                peak, peak_event = allocator.allocated, position
        elif -event in blocks:
            allocator.free(blocks.pop(-event))
    return Replay(peak, allocator.peak_reserved, peak_event, allocator.retries, refused)


def smallest_cap(trace: Trace, config: AllocatorConfig, uncapped: Replay) -> int:
    """Return the smallest cap under which the trace runs, given its replay without a cap."""
    low, high = 0, -(-uncapped.reserved // _CAP_STEP) * _CAP_STEP
    while high - low > _CAP_STEP:
        middle = (low + high) // 2 // _CAP_STEP * _CAP_STEP
        if _runs(trace, replace(config, cap=middle)):
            high = middle
        else:
            low = middle
    return high


def _runs(trace: Trace, config: AllocatorConfig) -> bool:
    try:
        replay(trace, config)
    except OutOfMemory:
        return False
    return True
