"""The values of the flags of `oomph sweep`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError, quote

if TYPE_CHECKING:
    from ..sweeps import Grid, Limits, Value

Flags = Mapping[str, tuple[str, ...]]

_INTEGER_AXES = {"--batch": "batch", "--img": "img"}
_MAX_COUNT = 1000


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
    from .. import sweeps  # noqa: PLC0415

    return sweeps.parse_limits(flags.get("--budget", (None,))[0], flags.get("--timeout", (None,))[0])


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
