"""Gradients that meet are summed up in place. No torch.

Where two gradients arrive at one tensor, autograd adds the second to the first if nobody else holds the first, or the
first to the second. It never does so for fake tensors, whose sums are always new: they are merged with what they would
have been added to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Merged:
    """Events without the sums that are no memory of their own.

    Attributes:
        events: births as i + 1 and deaths as -(i + 1).
        places: where each of the old events, and the end of them, is among the new ones.
        hosts: the sum to the storage that it lives in.
    """

    events: tuple[int, ...]
    places: tuple[int, ...]
    hosts: Mapping[int, int]


def merge(events: Sequence[int], sums: Mapping[int, tuple[int, ...]]) -> Merged:
    """Let each sum live in the first of its addends that dies with it.

    Args:
        events: births as i + 1 and deaths as -(i + 1), i being the index of a storage.
        sums: the index of a sum to those of its addends that it could be written into, the preferred one first.
    """
    kept: list[int] = []
    places: list[int] = []
    hosts: dict[int, int] = {}
    given: set[int] = set()  # addends whose memory goes on as a sum
    for place, event in enumerate(events):
        places.append(len(kept))
        index = abs(event) - 1
        if event > 0:
            host = _host(events, place, sums[index]) if index in sums else None
            if host is None:
                kept.append(event)
            else:
                hosts[index] = hosts.get(host, host)
                given.add(host)
        elif index not in given:
            kept.append(-hosts.get(index, index) - 1)
    return Merged(tuple(kept), (*places, len(kept)), hosts)


def _host(events: Sequence[int], place: int, addends: tuple[int, ...]) -> int | None:
    """The first addend that dies before anything else is born."""
    dying = set()
    for event in events[place + 1 : place + 1 + 2 * len(addends)]:
        if event > 0:
            break
        dying.add(-event - 1)
    return next((addend for addend in addends if addend in dying), None)
