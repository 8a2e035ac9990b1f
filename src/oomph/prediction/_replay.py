"""A trace replayed through the allocator: how much is allocated and reserved, and how small a cap would do."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..trace import Trace
from ..units import MIB
from ._allocator import Allocator, OutOfMemory, Rules

_GRAIN = 2 * MIB  # the device gives memory in pieces of this size, so a cap between two of them is as good as the lower


@dataclass(frozen=True)
class Replay:
    """What a replay found: peaks in bytes, the index of the event at the peak, and how often memory had to be found.

    Attributes:
        allocated: most bytes in blocks.
        reserved: most bytes taken from the device.
        at: index of the event that made the peak.
        retries: how often everything cached was returned to serve a request.
        refused: how many optional workspaces found no room.
    """

    allocated: int
    reserved: int
    at: int
    retries: int
    refused: int


def replay(trace: Trace, rules: Rules) -> Replay:
    """Replay a trace.

    Raises:
        OutOfMemory: it does not fit under the cap.
    """
    allocator = Allocator(rules)
    blocks = {}
    peak = at = refused = 0
    storages = trace.storages
    for place, event in enumerate(trace.events[: trace.trained]):
        if event > 0:
            storage = storages[event - 1]
            try:
                blocks[event] = allocator.malloc(storage.size)
            except OutOfMemory:
                if not storage.optional:
                    raise
                refused += 1  # cuDNN takes a plan that needs less
                continue
            if allocator.allocated > peak:
                peak, at = allocator.allocated, place
        elif -event in blocks:
            allocator.free(blocks.pop(-event))
    return Replay(peak, allocator.peak_reserved, at, allocator.retries, refused)


def smallest_cap(trace: Trace, rules: Rules, free: Replay) -> int:
    """The smallest cap under which the trace runs at all."""
    low, high = 0, -(-free.reserved // _GRAIN) * _GRAIN
    while high - low > _GRAIN:
        middle = (low + high) // 2 // _GRAIN * _GRAIN
        if _runs(trace, replace(rules, cap=middle)):
            high = middle
        else:
            low = middle
    return high


def _runs(trace: Trace, rules: Rules) -> bool:
    try:
        replay(trace, rules)
    except OutOfMemory:
        return False
    return True
