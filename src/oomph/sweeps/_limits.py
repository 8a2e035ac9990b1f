"""Budgets and timeouts as users write them."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import UsageError, quote
from ..machine import this_device
from ..units import parse_size, parse_time
from ._cell_files import Limits


def parse_limits(budget: str | int | None, timeout: str | float | None) -> Limits:
    """Return the limits of a cell.

    Args:
        budget: `"gpu=8GiB,ram=16GiB"`, one of the two, or a size, which is of the GPU if there is one, else of RAM.
        timeout: `"90s"`, `"10m"`, `"2h"`, or seconds.

    Raises:
        UsageError: one of them has another form.
    """
    sizes = {} if budget is None else dict(_parse_budget(budget))
    seconds = None if timeout is None else parse_time(str(timeout))
    return Limits(seconds, host=sizes.get("ram"), gpu=sizes.get("gpu"))


def _parse_budget(budget: str | int) -> Iterator[tuple[str, int]]:
    if isinstance(budget, int) or "=" not in budget:
        yield "ram" if this_device() == "cpu" else "gpu", parse_size(budget)
        return
    for part in budget.split(","):
        name, _, size = part.strip().partition("=")
        if name not in {"gpu", "ram"}:
            raise UsageError(
                f"{quote(part)} in the budget names neither gpu nor ram", "write a budget such as gpu=8GiB,ram=16GiB"
            )
        yield name, parse_size(size)
