"""NVTX ranges: the parts of a guarded step by name, for Nsight Systems."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

_log = logging.getLogger("oomph")
_NOTHING = nullcontext()


class Range(Protocol):
    """Opens a range with a name: `range("micro-batch {}", 3)`."""

    def __call__(self, name: str, /, *values: object) -> AbstractContextManager[None]:
        """Return the range; the values are inserted into the name."""
        ...


def no_range(name: str, /, *values: object) -> AbstractContextManager[None]:
    """Return a range that does nothing."""
    del name, values
    return _NOTHING


def nvtx_range(*, enabled: bool, device: torch.device) -> Range:
    """Return the function that opens ranges on a device."""
    if enabled and device.type != "cuda":
        _log.warning("nvtx=True marks nothing: NVTX ranges are for CUDA, and this is %s.", device)
        return no_range
    return torch.cuda.nvtx.range if enabled else no_range
