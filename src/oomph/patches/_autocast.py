"""Mixed precision: the autocast context of `Settings.precision`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

AUTOCAST_DTYPES = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}


def autocast(precision: str | None, device_type: str) -> AbstractContextManager[object]:
    """Return the context that forward and loss run in; without autocast it does nothing."""
    dtype = AUTOCAST_DTYPES.get(precision or "")
    return nullcontext() if dtype is None else torch.autocast(device_type, dtype=dtype)
