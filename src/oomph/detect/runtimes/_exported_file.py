"""A file that a runtime has loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Network = Callable[[NDArray[np.float32]], list[NDArray[np.float32]]]


@dataclass(frozen=True)
class ExportedFile:
    """A network that a runtime has loaded, and what its file says about it.

    Attributes:
        run: returns the outputs of images (n, 3, height, width), fp32 from 0 to 1.
        entries: the metadata; empty if the file has none.
        channels: number of channels of each output.
        max_side: largest height and width of images; None if the file has no limit.
        is_fixed: True if both sides must be `max_side`.
    """

    run: Network
    entries: Mapping[str, str]
    channels: tuple[int, ...]
    max_side: int | None = None
    is_fixed: bool = False


def parse_entries(text: str | bytes) -> dict[str, str]:
    """Return metadata that is stored as a JSON object of strings; nothing if it is anything else."""
    try:
        entries = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
        return {}
    return entries
