"""Torch's allocator for GPUs, set up as plans reckon with it."""

from __future__ import annotations

import os
import sys

import torch

_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # the second is what newer versions call it


def settle_allocator(device: torch.device) -> str:
    """The allocator that the plan reckons with: the user's, or expandable segments, switched on before CUDA begins."""
    given = next((os.environ[name] for name in _NAMES if os.environ.get(name)), None)
    if device.type == "cuda" and given is None and sys.platform == "linux" and not torch.cuda.is_initialized():
        os.environ[_NAMES[0]] = "expandable_segments:True"
        return "expandable"
    return given or "default"
