"""The checks of a Record, in the order of their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...failures import Finding
from .._record import Record
from ._device import device_leak, fragmentation, other_process, spill, thrashing
from ._exit import exit_cause
from ._host import host_leak, paging
from ._steps import non_finite_gradients, non_finite_loss, skipped_steps, starved

# The end of the run, the largest slowdowns, then problems that will end it, causes before their effects.
_CHECKS: tuple[Callable[[Record], Iterator[Finding]], ...] = (
    exit_cause,
    spill,
    paging,
    device_leak,
    host_leak,
    other_process,
    thrashing,
    fragmentation,
    non_finite_loss,
    non_finite_gradients,
    skipped_steps,
    starved,
)


def diagnose_record(record: Record) -> tuple[Finding, ...]:
    """Return the problems in a Record, most important first; empty if there are none."""
    return tuple(finding for check in _CHECKS for finding in check(record))
