"""Memory that grew in the lines before a failure: a leak, which no smaller batch cures."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from ._message_numbers import parse_size

# Memory as training loops print it: "allocated 3121 MiB", "gpu_mem=10.2G", "RSS: 5.1 GB".
_MEMORY = re.compile(
    r"(?i)(?P<what>allocated|reserved|(?:gpu|cuda|max|peak|used|host|cpu)[_ ]?mem(?:ory)?"
    r"|\bmem(?:ory)?|vram|\brss|\bram)"
    r"\W{0,4}(?:used|usage|allocated)?\W{0,4}(?P<number>\d[\d.,]*) ?(?P<unit>[KMGT]i?B?\b)"
)
_HOST = re.compile(r"(?i)rss|\bram|host|cpu")
_MIN_VALUES = 4
_MIN_GROWTH = 1.3  # of the last value to the first
_MIN_REGULARITY = 0.25  # of the smallest increase to the largest: a run that warms up grows less and less


@dataclass(frozen=True)
class Growth:
    """Memory at the first and the last of the lines between which it grew.

    Attributes:
        first: Bytes in the first line.
        last: Bytes in the last line.
        is_host: True for RAM, False for memory of the GPU.
    """

    first: int
    last: int
    is_host: bool


def find_growth(surroundings: str) -> Growth | None:
    """Return how memory grew from line to line, at a regular rate up to the end; None if it didn't."""
    values: dict[str, list[int]] = {}
    for line in surroundings.splitlines():
        match = _MEMORY.search(line)
        size = parse_size(match["number"], match["unit"]) if match else None
        if match is not None and size:
            values.setdefault(match["what"].lower(), []).append(size)
    for what, printed in values.items():
        sizes = _last_rise(printed)
        if _is_steady(sizes):
            return Growth(sizes[0], sizes[-1], _HOST.search(what) is not None)
    return None


def largest_host_memory(text: str) -> int | None:
    """Return the most RAM that a line says was in use; None if no line does."""
    matches = (match for match in _MEMORY.finditer(text) if _HOST.search(match["what"]))
    sizes = (parse_size(match["number"], match["unit"]) for match in matches)
    return max((size for size in sizes if size), default=None)


def _last_rise(sizes: list[int]) -> list[int]:
    """Return the last values, each of which is larger than the one before: a run may have been restarted."""
    start = len(sizes) - 1
    while start > 0 and sizes[start - 1] < sizes[start]:
        start -= 1
    return sizes[start:]


def _is_steady(sizes: list[int]) -> bool:
    if len(sizes) < _MIN_VALUES or sizes[-1] < _MIN_GROWTH * sizes[0]:
        return False
    increases = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    return min(increases) >= _MIN_REGULARITY * max(increases)
