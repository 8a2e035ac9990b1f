"""Torch's allocator for GPUs, set up as plans reckon with it."""

from __future__ import annotations

import contextlib
import os
import sys

import torch

_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # the second is what newer versions call it
_EXPANDABLE = "expandable_segments:True"


def settle_allocator(device: torch.device) -> str:
    """The allocator that the plan reckons with: the user's, or expandable segments, switched on before CUDA begins."""
    given = next((os.environ[name] for name in _NAMES if os.environ.get(name)), None)
    if device.type == "cuda" and given is None and sys.platform == "linux" and not torch.cuda.is_initialized():
        os.environ[_NAMES[0]] = _EXPANDABLE
        # The environment may have been read when torch was imported.
        tell = getattr(torch._C, "_accelerator_setAllocatorSettings", None)  # noqa: SLF001  there is no public one
        if tell is not None:
            with contextlib.suppress(RuntimeError):
                tell(_EXPANDABLE)
        return "expandable"
    return given or "default"
