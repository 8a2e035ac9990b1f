"""The values of the flags of `oomph sweep`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError, quote
from ..units import parse_size, parse_time

if TYPE_CHECKING:
    from ..sweeps import Grid, Limits, Value

Flags = Mapping[str, tuple[str, ...]]

_INTEGER_AXES = {"--batch": "batch", "--img": "img"}
_MAX_COUNT = 1000
_BUDGET_FIX = "write --budget gpu=8GiB,ram=16GiB"


def parse_grid(flags: Flags) -> Grid:
    """Return the grid of --batch, --img, --set and --seeds.

    Raises:
        UsageError: a list is empty, or a value is invalid.
    """
    from ..sweeps import Grid  # noqa: PLC0415

    axes: list[tuple[str, tuple[Value, ...]]] = [
        (name, tuple(_parse_integer(flag, text) for text in _split(flag, flags[flag][0])))
        for flag, name in _INTEGER_AXES.items()
        if flag in flags
    ]
    axes += [_parse_setting(text) for text in flags.get("--set", ())]
    return Grid(tuple(axes), tuple(range(parse_count(flags, "--seeds"))))


def parse_count(flags: Flags, flag: str) -> int:
    """Return the value of a flag that is a small number above 0; 1 without the flag."""
    text = flags.get(flag, ("1",))[0]
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= _MAX_COUNT:
        raise UsageError(f"{flag} is {quote(text)}", f"write a whole number from 1 to {_MAX_COUNT}")
    return int(text)


def parse_limits(flags: Flags) -> Limits:
    """Return the limits of --budget and --timeout."""
    from ..sweeps import Limits  # noqa: PLC0415

    budget = dict(_parse_budget(flags["--budget"][0])) if "--budget" in flags else {}
    seconds = parse_time(flags["--timeout"][0]) if "--timeout" in flags else None
    return Limits(seconds, host=budget.get("ram"), gpu=budget.get("gpu"))


def _parse_budget(text: str) -> Iterator[tuple[str, int]]:
    if "=" not in text:
        from ..machine import this_device  # noqa: PLC0415

        yield "ram" if this_device() == "cpu" else "gpu", parse_size(text)
        return
    for part in _split("--budget", text):
        name, _, size = part.partition("=")
        if name not in {"gpu", "ram"}:
            raise UsageError(f"{quote(part)} in --budget names neither gpu nor ram", _BUDGET_FIX)
        yield name, parse_size(size)


def _split(flag: str, text: str) -> Sequence[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise UsageError(f"{flag} is {quote(text)}, which has an empty value", "write values such as 16,32")
    return parts


def _parse_integer(flag: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise UsageError(f"{quote(text)} in {flag} is not a whole number above 0", "write values such as 320,640")
    return int(text)


def _parse_setting(text: str) -> tuple[str, tuple[Value, ...]]:
    name, separator, values = text.partition("=")
    if not separator:
        raise UsageError(f"--set {quote(text)} has no values", "write --set lr=0.1,0.01")
    return name.strip(), tuple(map(_parse_value, _split(f"--set {name}", values)))


def _parse_value(text: str) -> Value:
    """Return a number if it is written as Python writes it; a command gets other texts, such as 1e-3, unchanged."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text and text not in {"nan", "inf", "-inf"}:
            return number
    return text
