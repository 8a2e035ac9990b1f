"""Verdicts on a Record: what its samples, steps and events show."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..failures import Finding
from ._death import death
from ._device import device_leak, fragmentation, other_process, spill, thrash
from ._host import host_leak, paging
from ._record import Record
from ._steps import bad_gradients, bad_loss, skipped_steps, starved

_Judge = Callable[[Record], Iterator[Finding]]

# The order is that of the findings: what ended the run, what slows it most, what will end it.
_JUDGES: tuple[_Judge, ...] = (
    death,
    spill,
    paging,
    device_leak,
    host_leak,
    thrash,
    other_process,
    fragmentation,
    bad_loss,
    bad_gradients,
    skipped_steps,
    starved,
)


def judge(record: Record) -> tuple[Finding, ...]:
    """What a Record shows, the most important first; nothing if all is well."""
    return tuple(finding for one in _JUDGES for finding in one(record))
