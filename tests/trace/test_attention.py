from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oomph.trace import Device
from oomph.trace._attention import Backend, choose

HOPPER, AMPERE, TURING = Device(), Device(capability=(8, 6)), Device(capability=(7, 5))


def tensors(dtype: torch.dtype, width: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    q = torch.empty(2, 4, 128, width, dtype=dtype, device="meta")
    return q, q, q


@pytest.mark.parametrize(
    ("dtype", "width", "device", "backend"),
    [
        (torch.bfloat16, 64, HOPPER, Backend.CUDNN),
        (torch.bfloat16, 192, HOPPER, Backend.FLASH),
        (torch.float32, 64, HOPPER, Backend.EFFICIENT),
        (torch.float16, 64, AMPERE, Backend.FLASH),
        (torch.float16, 64, TURING, Backend.EFFICIENT),
        (torch.bfloat16, 64, TURING, Backend.MATH),
        (torch.float32, 30, HOPPER, Backend.MATH),
    ],
)
def test_the_kernel_is_the_one_torch_prefers(dtype: torch.dtype, width: int, device: Device, backend: Backend) -> None:
    assert choose(*tensors(dtype, width), None, 0.0, device) is backend


def test_a_mask_rules_flash_out() -> None:
    mask = torch.empty(2, 4, 128, 128, dtype=torch.float16, device="meta")
    assert choose(*tensors(torch.float16), mask, 0.0, AMPERE) is Backend.EFFICIENT
