"""Sums of gradients that autograd writes in place. No torch.

Where two gradients of one tensor meet, autograd adds the second to the first in place if it holds the only reference to
the first, else the first to the second. For fake tensors it always allocates the sum. This module merges such sums with
the addend that they would have been written into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MergedEvents:
    """Events without the sums that are written in place.

    Attributes:
        events: i + 1 allocates storage i, -(i + 1) frees it.
        positions: the new index of each old event, followed by the number of new events.
        hosts: the index of a sum to the index of the storage that holds it.
    """

    events: tuple[int, ...]
    positions: tuple[int, ...]
    hosts: Mapping[int, int]


def merge_sums(events: Sequence[int], sums: Mapping[int, tuple[int, ...]]) -> MergedEvents:
    """Place each sum in the first of its addends that is freed together with it.

    Args:
        events: i + 1 allocates storage i, -(i + 1) frees it.
        sums: the index of a sum to the indices of the addends it could be written into, preferred first.
    """
    kept: list[int] = []
    positions: list[int] = []
    hosts: dict[int, int] = {}
    reused: set[int] = set()  # addends whose memory now holds a sum
    for position, event in enumerate(events):
        positions.append(len(kept))
        index = abs(event) - 1
        if event > 0:
            host = _find_host(events, position, sums[index]) if index in sums else None
            if host is None:
                kept.append(event)
            else:
                hosts[index] = hosts.get(host, host)
                reused.add(host)
        elif index not in reused:
            kept.append(-hosts.get(index, index) - 1)
    return MergedEvents(tuple(kept), (*positions, len(kept)), hosts)


def _find_host(events: Sequence[int], position: int, addends: tuple[int, ...]) -> int | None:
    """Return the first addend that is freed before the next allocation."""
    freed = set()
    for event in events[position + 1 : position + 1 + 2 * len(addends)]:
        if event > 0:
            break
        freed.add(-event - 1)
    return next((addend for addend in addends if addend in freed), None)
