"""The values of the flags of `oomph sweep`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import UsageError, quote
from ...units import parse_time

if TYPE_CHECKING:
    from ...sweeps import Grid, Value

Flags = Mapping[str, tuple[str, ...]]

_INTEGER_AXES = {"--batch": "batch", "--img": "img"}
_TEXT_AXES = {"--cfg": "cfg", "--weights": "weights"}
_MAX_COUNT = 1000


def parse_grid(flags: Flags) -> Grid:
    """Return the grid of --batch, --img, --cfg, --weights, --set and --seeds.

    Raises:
        UsageError: a list is empty, or a value is invalid.
    """
    from ...sweeps import Grid  # noqa: PLC0415

    axes: list[tuple[str, tuple[Value, ...]]] = [
        (name, tuple(_parse_integer(flag, text) for text in _split(flag, flags[flag][0])))
        for flag, name in _INTEGER_AXES.items()
        if flag in flags
    ]
    axes += [(name, tuple(_split(flag, flags[flag][0]))) for flag, name in _TEXT_AXES.items() if flag in flags]
    axes += [_parse_setting(text) for text in flags.get("--set", ())]
    return Grid(tuple(axes), tuple(range(parse_count(flags, "--seeds"))))


def parse_count(flags: Flags, flag: str) -> int:
    """Return the value of a flag that is a small number above 0; 1 without the flag."""
    text = flags.get(flag, ("1",))[0]
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= _MAX_COUNT:
        raise UsageError(f"{flag} is {quote(text)}", f"write a whole number from 1 to {_MAX_COUNT}")
    return int(text)


@dataclass(frozen=True)
class RayShare:
    """Share of a Ray cluster that a cell gets: GPUs, or a part of one; None for one GPU, if the cluster has any."""

    gpus: float | None = None


def parse_place(flags: Flags) -> RayShare | None:
    """Return the share of --on ray; None for this machine.

    Raises:
        UsageError: the flag has another form.
    """
    text = flags.get("--on", ("local",))[0]
    if text == "local":
        return None
    name, _, share = text.partition(":")
    if name != "ray" or (":" in text and not _is_share(share)):
        raise UsageError(f"--on is {quote(text)}", "write local, ray, or ray:0.5 for half a GPU per cell")
    return RayShare(float(share) if share else None)


def _is_share(text: str) -> bool:
    """Return True for a part of a GPU or a whole number of GPUs, which is what Ray accepts."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,4})?", text):
        return False
    return float(text) < 1 or float(text) == int(float(text))


def parse_seconds(flags: Flags, flag: str) -> float | None:
    """Return the value of a flag that is a time; None without the flag."""
    return parse_time(flags[flag][0]) if flag in flags else None


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
