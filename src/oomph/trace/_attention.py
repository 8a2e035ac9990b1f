"""Selection of the attention kernel, in torch's order of preference."""

from __future__ import annotations

import enum

import torch
from torch import Tensor

from ._device import CudaDevice


class AttentionBackend(enum.Enum):
    """The kernels that `scaled_dot_product_attention` chooses from."""

    CUDNN = "cudnn"
    FLASH = "flash"
    EFFICIENT = "efficient"
    MATH = "math"


_HALF = {torch.float16, torch.bfloat16}
_CUDNN_PREFERRED_ABOVE = 91500  # newer cuDNN versions come first on Hopper and Blackwell
_AMPERE = (8, 0)


def choose_backend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, device: CudaDevice) -> AttentionBackend:
    """Return the kernel that torch would run on this GPU for these tensors."""
    order = [AttentionBackend.FLASH, AttentionBackend.EFFICIENT]
    if device.capability[0] in {9, 10} and device.cudnn > _CUDNN_PREFERRED_ABOVE:
        order.insert(0, AttentionBackend.CUDNN)
    supports = {
        AttentionBackend.CUDNN: _cudnn_supports,
        AttentionBackend.FLASH: _flash_supports,
        AttentionBackend.EFFICIENT: _efficient_supports,
    }
    for backend in order:
        if supports[backend](q, k, v, mask, device):
            return backend
    return AttentionBackend.MATH


def _has_valid_shapes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    return q.dim() == k.dim() == v.dim() == 4 and 0 not in q.shape and 0 not in k.shape  # noqa: PLR2004


def _cudnn_supports(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, device: CudaDevice) -> bool:
    del device
    width = q.shape[-1]
    fits = width % 8 == 0 and width <= 128 and v.shape[-1] % 8 == 0 and v.shape[-1] <= 128  # noqa: PLR2004
    needs_mask_gradient = mask is not None and mask.requires_grad
    return _has_valid_shapes(q, k, v) and q.dtype in _HALF and fits and not needs_mask_gradient and k.shape[-2] > 1


def _flash_supports(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, device: CudaDevice) -> bool:
    same_width = q.shape[-1] == k.shape[-1] == v.shape[-1] and q.shape[-1] <= 256  # noqa: PLR2004
    return (
        device.capability >= _AMPERE and _has_valid_shapes(q, k, v) and mask is None and q.dtype in _HALF and same_width
    )


def _efficient_supports(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, device: CudaDevice) -> bool:
    del mask
    align = 4 if q.dtype == torch.float32 else 8
    dtypes = {torch.float32, torch.float16} | ({torch.bfloat16} if device.capability >= _AMPERE else set())
    aligned = q.shape[-1] % align == 0 and v.shape[-1] % align == 0
    return device.capability >= (5, 0) and _has_valid_shapes(q, k, v) and q.dtype in dtypes and aligned


def run_attention(  # noqa: PLR0913  the parameters of scaled_dot_product_attention
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,  # noqa: FBT001
    scale: float | None,
    device: CudaDevice,
) -> Tensor:
    """Call the operation that torch would call on this GPU."""
    backend = choose_backend(q, k, v, mask, device)
    aten = torch.ops.aten
    needs_grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if mask is not None and mask.dtype == torch.bool and backend is not AttentionBackend.MATH:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask.logical_not(), float("-inf"))
    if backend is AttentionBackend.CUDNN:
        out = aten._scaled_dot_product_cudnn_attention(q, k, v, mask, needs_grad, dropout, causal, False, scale=scale)
    elif backend is AttentionBackend.FLASH:
        out = aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, False, scale=scale)
    elif backend is AttentionBackend.EFFICIENT:
        out = aten._scaled_dot_product_efficient_attention(q, k, v, mask, needs_grad, dropout, causal, scale=scale)
    else:
        out = aten._scaled_dot_product_attention_math(q, k, v, mask, dropout, causal, None, scale=scale)
    return out[0]  # type: ignore[no-any-return]
