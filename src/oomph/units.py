"""Bytes to text and back: the only place where a size becomes text.

Sizes are whole bytes everywhere else. Written with an i, units are powers of 1024 (GiB); GB and MB are powers of
1000, as disks and budgets are sold; the bare letters of docker, Slurm and the JVM (16g) are powers of 1024.
"""

from __future__ import annotations

import re
from decimal import Decimal

from .errors import InvalidSize

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
_SIZE = re.compile(r"\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[a-zA-Z]*|%)\s*", re.ASCII)
_BEYOND = 2**63
_QUOTED = 40  # characters of a wrong text that are shown
_HOW = "write a number and a unit, such as 8GiB, 24GB or 512M"


def parse_size(text: str | int, *, of: int | None = None) -> int:
    """Read a size in bytes: `"24GB"`, `"11.4 GiB"`, `"16g"`, `"1048576"`, or `"80%"` where `of` says of what.

    Raises:
        InvalidSize: the text is not a size, or a percentage with nothing to take it of.
    """
    if isinstance(text, int):
        if text < 0:
            raise InvalidSize(f"{text} is not a size", "a size is zero bytes or more")
        return text
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidSize(f"{_short(text)} is not a size", _HOW)
    number, unit = Decimal(match["number"]), match["unit"].lower()
    if unit == "%":
        return _share(text, number, of)
    factor = _UNITS.get(unit)
    if factor is None:
        raise InvalidSize(f"{_short(text)} is not a size ({_short(match['unit'])} is no unit of memory)", _HOW)
    if number * factor >= _BEYOND:
        raise InvalidSize(f"{_short(text)} is more memory than any machine has", _HOW)
    return int(number * factor)


def _short(text: str) -> str:
    return repr(text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…")


def _share(text: str, percent: Decimal, of: int | None) -> int:
    if of is None:
        raise InvalidSize(f"{_short(text)} is a share of nothing that is known here", _HOW)
    if percent > 100:  # noqa: PLR2004  a hundred percent is all of it
        raise InvalidSize(f"{_short(text)} is more than there is", "write at most 100%")
    return int(of * percent / 100)


def format_size(size: float) -> str:
    """Write a size for people, with three digits: `"11.4 GiB"`, `"64 MiB"`, `"0 B"`."""
    if size < 0:
        return "-" + format_size(-size)
    for factor, unit in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        # 999.5 KiB would round to four digits, so the next unit takes over a little before its whole.
        if size >= factor * 0.9995:
            return f"{_three_digits(size / factor)} {unit}"
    return f"{round(size)} B"


def format_rate(size_per_second: float) -> str:
    """Write bytes per second for people: `"12 MiB/s"`."""
    return f"{format_size(size_per_second)}/s"


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0  # noqa: PLR2004  where a digit moves over
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_time(seconds: float) -> str:
    """Write a time for people: `"45 s"`, `"12 min"`, `"3 h 05 min"`."""
    if seconds < 59.5:  # noqa: PLR2004  from here on it rounds to a minute
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun: "1 image", "2 images", "3 boxes"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
