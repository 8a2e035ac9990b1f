"""Budgets and timeouts as users write them."""

from __future__ import annotations

from ..machine import this_device
from ..units import parse_size, parse_time, split_budget
from .supervisor import Limits


def parse_limits(budget: str | int | None, timeout: str | float | None) -> Limits:
    """Return the limits of a cell.

    Args:
        budget: `"gpu=8GiB,ram=16GiB"`, one of the two, or a size, which is of the GPU if there is one, else of RAM.
        timeout: `"90s"`, `"10m"`, `"2h"`, or seconds.

    Raises:
        UsageError: one of them has another form.
    """
    seconds = None if timeout is None else parse_time(str(timeout))
    if isinstance(budget, int) or (budget is not None and "=" not in budget):
        size = parse_size(budget)
        return Limits(seconds, host=size) if this_device() == "cpu" else Limits(seconds, gpu=size)
    gpu, ram = split_budget(budget)
    return Limits(seconds, host=None if ram is None else parse_size(ram), gpu=None if gpu is None else parse_size(gpu))
