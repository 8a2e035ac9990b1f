from __future__ import annotations

import pytest
import torch

from oomph.patches import autocast


@pytest.mark.parametrize(
    ("precision", "dtype"), [("amp-bf16", torch.bfloat16), ("amp-fp16", torch.float16), ("fp32", torch.float32)]
)
def test_autocast_computes_in_the_requested_precision(precision: str, dtype: torch.dtype) -> None:
    with autocast(precision, "cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
    with autocast(None, "cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
