"""Parsing and formatting of memory sizes, rates, durations and metrics.

Everywhere else a size is an `int` of bytes. GiB and MiB are powers of 1024. GB and MB are powers of 1000, as disks are
sold. The bare letters of docker, Slurm and the JVM (16g) are powers of 1024.
"""

from __future__ import annotations

import re
from decimal import Decimal

from .errors import InvalidSize, UsageError, quote

KIB = 1024
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

_UNITS = {
    "": 1,
    "b": 1,
    "byte": 1,
    "bytes": 1,
    **{f"{letter}{tail}": 1024**power for power, letter in enumerate("kmgt", 1) for tail in ("", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE_PATTERN = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[a-zA-Z]*|%)\s*", re.ASCII)
_MAX_SIZE = 2**63
_TIME_PATTERN = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>s|m|min|h|d|)\s*", re.ASCII)
_TIME_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_FIX = "write a number and a unit, such as 8GiB, 24GB or 512M"


def parse_size(text: str | int, *, of: int | None = None) -> int:
    """Return the bytes of a size such as `"24GB"`, `"11.4 GiB"`, `"16g"` or `"1048576"`; `"80%"` is relative to `of`.

    Raises:
        InvalidSize: the text is not a size, or is a percentage and `of` is None.
    """
    if isinstance(text, int):
        if text < 0:
            raise InvalidSize(f"{text} is negative", "write a size of at least 0 bytes")
        return text
    match = _SIZE_PATTERN.fullmatch(str(text))
    if match is None:
        raise InvalidSize(f"{quote(str(text))} is not a size", _FIX)
    number, unit = Decimal(match["number"]), match["unit"].lower()
    if unit == "%":
        return _parse_percentage(text, number, of)
    factor = _UNITS.get(unit)
    if factor is None:
        raise InvalidSize(f"{quote(text)} is not a size ({quote(match['unit'])} is not a unit of memory)", _FIX)
    if number * factor >= _MAX_SIZE:
        raise InvalidSize(f"{quote(text)} is larger than the memory of any machine", _FIX)
    return int(number * factor)


def _parse_percentage(text: str, percent: Decimal, of: int | None) -> int:
    if of is None:
        raise InvalidSize(f"{quote(text)} is a percentage, which is not supported here", _FIX)
    if percent > 100:  # noqa: PLR2004
        raise InvalidSize(f"{quote(text)} is more than 100%", "write at most 100%")
    return int(of * percent / 100)


def format_size(size: float) -> str:
    """Return a size as text with three significant digits: `"11.4 GiB"`, `"64 MiB"`, `"0 B"`."""
    if size < 0:
        return "-" + format_size(-size)
    for factor, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        # The next unit starts slightly early: just below it, the smaller unit would round to four digits.
        if size >= factor * 0.9995:
            return f"{_three_digits(size / factor)} {unit}"
    return f"{round(size)} B"


def format_rate(size_per_second: float) -> str:
    """Return a rate in bytes per second as text: `"12 MiB/s"`."""
    return f"{format_size(size_per_second)}/s"


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0  # noqa: PLR2004  9.995 rounds to 10.0
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_time(seconds: float) -> str:
    """Return a duration as text: `"45 s"`, `"12 min"`, `"3 h 05 min"`."""
    if seconds < 59.5:  # noqa: PLR2004  59.5 s rounds to a minute
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def parse_time(text: str) -> float:
    """Return the seconds of a duration such as `"90"`, `"45s"`, `"10m"`, `"1.5 h"` or `"2d"`.

    Raises:
        UsageError: the text is not a duration above 0.
    """
    match = _TIME_PATTERN.fullmatch(text)
    seconds = 0.0 if match is None else float(match["number"]) * _TIME_UNITS[match["unit"]]
    if not seconds:
        raise UsageError(f"{quote(text)} is not a duration", "write a number and a unit, such as 90s, 10m or 2h")
    return seconds


def format_number(value: float) -> str:
    """Return a metric as text: `"0.612"`, `"37.5"`, `"2.1e-05"`."""
    size = abs(value)
    if size and not 0.001 <= size < 10**6:  # noqa: PLR2004  fewer than three decimals would show nothing
        return f"{value:.2g}"
    return f"{value:.3f}" if size < 10 else f"{value:.1f}" if size < 1000 else f"{value:.0f}"  # noqa: PLR2004


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: `"1 image"`, `"2 images"`, `"3 boxes"`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def split_budget(text: str | None) -> tuple[str | None, str | None]:
    """Return the budgets of the device and of the host, from "8GiB" or "gpu=8GiB,ram=16GiB".

    Raises:
        UsageError: the text has another form.
    """
    if text is None or "=" not in text:
        return text, None
    budgets: dict[str, str | None] = {"gpu": None, "ram": None}
    for part in text.split(","):
        name, _, size = (piece.strip() for piece in part.partition("="))
        if name not in budgets or not size:
            raise UsageError(f"the budget is {quote(text)}", "write a size, or gpu=8GiB,ram=16GiB")
        budgets[name] = size
    return budgets["gpu"], budgets["ram"]
