"""The device that a model runs on."""

from __future__ import annotations

import torch

from ..errors import UsageError


def find_device(name: str | None) -> torch.device:
    """Return the device of that name; without a name the first GPU, or the CPU if there is none.

    Raises:
        UsageError: the GPU doesn't exist.
    """
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type != "cuda":
        return device
    number, count = device.index or 0, torch.cuda.device_count()
    if number >= count:
        raise UsageError(f"there is no GPU {number}; torch sees {count}", "pass another number, or cpu")
    return torch.device("cuda", number)  # with its index: torch can't set a memory limit without one
