"""The device that a model runs on, and the CUDA allocator's settings."""

from __future__ import annotations

import contextlib
import os
import sys

import torch

from ..errors import UsageError

_ENV_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # the second is the name in newer versions
_EXPANDABLE = "expandable_segments:True"


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


def configure_allocator(device: torch.device) -> str:
    """Enable expandable segments before CUDA starts, and return the allocator settings that a plan should assume.

    The user's settings in the environment have priority.
    """
    settings = next((os.environ[name] for name in _ENV_NAMES if os.environ.get(name)), None)
    if device.type == "cuda" and settings is None and sys.platform == "linux" and not torch.cuda.is_initialized():
        os.environ[_ENV_NAMES[0]] = _EXPANDABLE
        # torch may have read the environment when it was imported. There is no public function for this.
        set_allocator = getattr(torch._C, "_accelerator_setAllocatorSettings", None)  # noqa: SLF001
        if set_allocator is not None:
            with contextlib.suppress(RuntimeError):
                set_allocator(_EXPANDABLE)
        return "expandable"
    return settings or "default"
