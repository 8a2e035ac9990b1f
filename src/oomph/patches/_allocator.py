"""Settings of torch's CUDA allocator: expandable segments, and a cap on the memory that it may reserve."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import sys
from typing import Any

import torch

from ..machine import OUTSIDE
from ..units import MIB, format_size

_log = logging.getLogger("oomph")
_SPILL_MARGIN_BYTES, _SPILL_MARGIN_FRACTION = 256 * MIB, 0.03  # distance of the cap from all free memory

_ENV_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # the second is the name in newer versions
_EXPANDABLE = "expandable_segments:True"

_spill_warned: set[int] = set()  # devices


def configure_allocator(device: torch.device) -> str:
    """Enable expandable segments before CUDA starts, and return the allocator settings that a plan should assume.

    The user's settings in the environment have priority.
    """
    settings = next((os.environ[name] for name in _ENV_NAMES if os.environ.get(name)), None)
    if device.type == "cuda" and settings is None and sys.platform == "linux" and not torch.cuda.is_initialized():
        os.environ[_ENV_NAMES[0]] = _EXPANDABLE
        # torch may have read the environment when it was imported. There is no public function for this.
        set_allocator = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
        if set_allocator is not None:
            with contextlib.suppress(RuntimeError):
                set_allocator(_EXPANDABLE)
        return "expandable"
    return settings or "default"


def allocator_limit(device: torch.device) -> int:
    """Return the bytes that the allocator of a GPU may reserve in total."""
    free, total = torch.cuda.mem_get_info(device)
    return min(free + torch.cuda.memory_reserved(device), int(_memory_fraction(device) * total))


def cap_allocator(device: torch.device, budget: int) -> None:
    """Cap the allocator so that this process uses at most a budget, as nvidia-smi shows it."""
    torch.cuda.empty_cache()  # the cap is no limit for cached blocks
    free, total = torch.cuda.mem_get_info(device)
    outside = bytes_outside_allocator(total - free, torch.cuda.memory_reserved(device))
    torch.cuda.set_per_process_memory_fraction(min(max((budget - outside) / total, 0.0), 1.0), device)


def cap_allocator_below_spill(device: torch.device) -> None:
    """Cap the allocator on Windows and WSL, where the driver spills into RAM, unless it is capped already."""
    if _memory_fraction(device) < 1:
        return
    free, total = torch.cuda.mem_get_info(device)
    available = free + torch.cuda.memory_reserved(device)
    fraction = spill_fraction(platform.system(), platform.release(), total=total, available=available)
    if fraction is None:
        return
    torch.cuda.set_per_process_memory_fraction(fraction, device)
    if device.index not in _spill_warned:
        _spill_warned.add(device.index)
        _log.warning(
            "This driver spills GPU memory into RAM, which makes steps very slow: torch may use %s of %s here, and "
            "batches that need more are split. Set budget= to choose another limit.",
            format_size(fraction * total),
            format_size(total),
        )


def spill_fraction(system: str, release: str, *, total: int, available: int) -> float | None:
    """Return the fraction of a GPU that stays below the point where the driver spills into RAM; None if it doesn't.

    Args:
        system: `platform.system()`.
        release: `platform.release()`; WSL is a Linux with a Microsoft kernel.
        total: bytes of the GPU.
        available: bytes that are free or reserved by this process's allocator.
    """
    if system != "Windows" and "microsoft" not in release.lower():
        return None
    margin = max(_SPILL_MARGIN_BYTES, int(_SPILL_MARGIN_FRACTION * total))
    return max(available - margin, 0) / total


def bytes_outside_allocator(used: int, reserved: int) -> int:
    """Estimate this process's GPU memory outside the allocator (the CUDA context), from all that is in use.

    Args:
        used: bytes of the GPU in use by all processes.
        reserved: bytes reserved by this process's allocator.
    """
    return min(max(used - reserved, 0), OUTSIDE[-1])


def _memory_fraction(device: torch.device) -> float:
    read: Any = getattr(torch.cuda, "get_per_process_memory_fraction", None)  # new in torch 2.8
    return 1.0 if read is None else float(read(device))
