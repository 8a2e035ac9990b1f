"""The options of `oomph.guard` that integrations pass on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError, quote
from ..recovery import as_tuple
from ..recovery import check_options as check_values

OPTIONS = (
    "reduction", "inexact", "split", "samples", "micro_batch", "extra_state", "cooldown_steps", "rank_timeout",
    "snapshot", "nvtx",
)  # fmt: skip


def check_options(
    options: Mapping[str, Any], *, got: str, owner: str, allowed: Sequence[str] = OPTIONS, beside: Sequence[str] = ()
) -> None:
    """Check the names and values of options, before model and data are loaded.

    Args:
        options: the options.
        got: the beginning of the sentence about an unknown one, such as "guard_options contains".
        owner: who sets all other options of the guard.
        allowed: the names.
        beside: other arguments of the function that takes the options, for that sentence.

    Raises:
        UsageError: an option is unknown, or its value is wrong.
    """
    unknown = next((name for name in options if name not in allowed), None)
    if unknown is not None:
        raise UsageError(
            f"{got} {unknown!r}, which {owner} sets itself or doesn't know", f"use {', '.join((*beside, *allowed))}"
        )
    check_values(**options)


def check_budget_and_record(budget: int | str | None, record: object) -> None:
    """Check the arguments that all integrations have.

    Raises:
        UsageError: the budget is no size, or the record no path.
    """
    check_values(budget=budget)
    if record is not None and not isinstance(record, (str, os.PathLike)):
        raise UsageError(f"record is {quote(record)}", 'name a file, such as "run.jsonl"')


def with_extra_state(options: Mapping[str, Any], *state: object) -> dict[str, Any]:
    """Return options whose extra_state also has the state that an integration restores."""
    return {**options, "extra_state": (*as_tuple(options.get("extra_state")), *state)}
