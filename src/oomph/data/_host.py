"""Host memory that loading takes, and what there is of it."""

from __future__ import annotations

import os
from functools import cache

from ..machine import read_machine
from ..units import GIB, MIB

_LEAST, _MOST = 64 * MIB, GIB
_SHARE = 4  # a quarter of what is left: the rest is the model's


@cache
def default_budget() -> int:
    """Bytes for decoding when nobody says: a quarter of what this machine has left, at most a GiB."""
    tightest = read_machine().budget.tightest
    room = tightest.room if tightest is not None else _MOST
    return max(min(room // _SHARE, _MOST), _LEAST)


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
