"""Whether decoded copies, kept in memory for the next epoch, pay."""

from __future__ import annotations

from dataclasses import dataclass

from ...units import format_size
from .._room import HostResources
from ._shelf import Decoded
from ._tuning import WAITS, Timings

# Reading a copy: its name by what the file holds, then its bytes with their checksum. Measured: 1.0 ms for 820 kB.
_FIND, _PER_BYTE = 0.4e-3, 1 / 1.2e9
_FASTER = 3.0  # times that reading a copy must be faster than decoding
SIZES = 2  # that images may be asked for in, training and validation
_SHARE = 0.1  # of all copies that must fit
_LOOK = 8  # pictures that must have been decoded


@dataclass(frozen=True)
class Case:
    """What is known when the question is asked.

    Attributes:
        pace: of the last batches.
        decoded: what decoding took.
        all: bytes of copies of all images.
        room: what the machine leaves now.
    """

    pace: Timings
    decoded: Decoded
    all: int
    room: HostResources


@dataclass(frozen=True)
class Verdict:
    """Bytes that a cache in memory may take, 0 for none; why; and whether it is worth asking again later."""

    bytes: int
    why: str
    open: bool = False


def judge_cache(case: Case) -> Verdict:
    """Say whether a cache pays, and how large it may be."""
    decoded = case.decoded
    if decoded.pictures < _LOOK:
        return Verdict(0, "too few whole images were decoded to tell", open=True)
    if decoded.boxes > SIZES:
        return Verdict(0, "images are decoded to changing sizes, so copies would not be used again")
    each, size = decoded.seconds / decoded.pictures, decoded.bytes / decoded.pictures
    reading = _FIND + size * _PER_BYTE
    times = f"decoding an image takes {each * 1e3:.1f} ms, reading its copy {reading * 1e3:.1f} ms"
    if each < reading * _FASTER:
        return Verdict(0, f"{times}: too little to gain")
    if case.pace.waiting <= WAITS:
        return Verdict(0, "batches are there before they are asked for", open=True)
    # Half of what is left: the model's own peak may be still to come, and /dev/shm must not fill up.
    cap = min(case.all, case.room.memory // 2, case.room.shm * 9 // 10)
    if cap < case.all * _SHARE:
        room = f"{format_size(case.room.memory)} of memory and {format_size(case.room.shm)} of /dev/shm are left"
        return Verdict(0, f"copies would take {format_size(case.all)}, and {room}")
    part = "all images" if cap == case.all else f"{cap / case.all:.0%} of the images"
    return Verdict(cap, f"{times}, and the consumer waits; copies of {part} fit")
