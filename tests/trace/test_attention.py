from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oomph.trace import CudaDevice
from oomph.trace._attention import AttentionBackend, choose_backend

HOPPER, AMPERE, TURING = CudaDevice(), CudaDevice(capability=(8, 6)), CudaDevice(capability=(7, 5))


def tensors(dtype: torch.dtype, width: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    q = torch.empty(2, 4, 128, width, dtype=dtype, device="meta")
    return q, q, q


@pytest.mark.parametrize(
    ("dtype", "width", "device", "backend"),
    [
        (torch.bfloat16, 64, HOPPER, AttentionBackend.CUDNN),
        (torch.bfloat16, 192, HOPPER, AttentionBackend.FLASH),
        (torch.float32, 64, HOPPER, AttentionBackend.EFFICIENT),
        (torch.float16, 64, AMPERE, AttentionBackend.FLASH),
        (torch.float16, 64, TURING, AttentionBackend.EFFICIENT),
        (torch.bfloat16, 64, TURING, AttentionBackend.MATH),
        (torch.float32, 30, HOPPER, AttentionBackend.MATH),
    ],
)
def test_backend_is_the_one_that_torch_prefers(
    dtype: torch.dtype, width: int, device: CudaDevice, backend: AttentionBackend
) -> None:
    assert choose_backend(*tensors(dtype, width), None, device) is backend


def test_mask_excludes_flash() -> None:
    mask = torch.empty(2, 4, 128, 128, dtype=torch.float16, device="meta")
    assert choose_backend(*tensors(torch.float16), mask, AMPERE) is AttentionBackend.EFFICIENT
