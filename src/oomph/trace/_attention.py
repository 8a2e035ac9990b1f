"""Which attention kernel a GPU takes, and what it allocates. Follows torch's own order of preference."""

from __future__ import annotations

import enum

import torch
from torch import Tensor

from ._device import Device


class Backend(enum.Enum):
    """The kernels that `scaled_dot_product_attention` chooses from."""

    CUDNN = "cudnn"
    FLASH = "flash"
    EFFICIENT = "efficient"
    MATH = "math"


_HALF = {torch.float16, torch.bfloat16}
_CUDNN_FIRST = 91500  # cuDNN from here on goes first on Hopper and Blackwell
_AMPERE = (8, 0)


def choose(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, device: Device) -> Backend:
    """The kernel that torch would run on that GPU for these tensors."""
    order = [Backend.FLASH, Backend.EFFICIENT]
    if device.capability[0] in {9, 10} and device.cudnn > _CUDNN_FIRST:
        order.insert(0, Backend.CUDNN)
    usable = {Backend.CUDNN: _cudnn, Backend.FLASH: _flash, Backend.EFFICIENT: _efficient}
    for backend in order:
        if usable[backend](q, k, v, mask, dropout, device):
            return backend
    return Backend.MATH


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    return q.dim() == k.dim() == v.dim() == 4 and 0 not in q.shape and 0 not in k.shape  # noqa: PLR2004


def _cudnn(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, device: Device) -> bool:
    del dropout, device
    width = q.shape[-1]
    fits = width % 8 == 0 and width <= 128 and v.shape[-1] % 8 == 0 and v.shape[-1] <= 128  # noqa: PLR2004
    needs_mask_gradient = mask is not None and mask.requires_grad
    return _shapes(q, k, v) and q.dtype in _HALF and fits and not needs_mask_gradient and k.shape[-2] > 1


def _flash(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, device: Device) -> bool:
    del dropout
    same = q.shape[-1] == k.shape[-1] == v.shape[-1] and q.shape[-1] <= 256  # noqa: PLR2004
    return device.capability >= _AMPERE and _shapes(q, k, v) and mask is None and q.dtype in _HALF and same


def _efficient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, device: Device) -> bool:
    del mask, dropout
    align = 4 if q.dtype == torch.float32 else 8
    kinds = {torch.float32, torch.float16} | ({torch.bfloat16} if device.capability >= _AMPERE else set())
    fits = q.shape[-1] % align == 0 and v.shape[-1] % align == 0
    return device.capability >= (5, 0) and _shapes(q, k, v) and q.dtype in kinds and fits


def attend(  # noqa: PLR0913  the function that it stands for takes as many
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,  # noqa: FBT001
    scale: float | None,
    device: Device,
) -> Tensor:
    """Call the operation that torch would call on that GPU."""
    backend = choose(q, k, v, mask, dropout, device)
    aten = torch.ops.aten
    grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if mask is not None and mask.dtype == torch.bool and backend is not Backend.MATH:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask.logical_not(), float("-inf"))
    if backend is Backend.CUDNN:
        out = aten._scaled_dot_product_cudnn_attention(q, k, v, mask, grad, dropout, causal, False, scale=scale)
        return out[0]  # type: ignore[no-any-return]
    if backend is Backend.FLASH:
        out = aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, False, scale=scale)
        return out[0]  # type: ignore[no-any-return]
    if backend is Backend.EFFICIENT:
        out = aten._scaled_dot_product_efficient_attention(q, k, v, mask, grad, dropout, causal, scale=scale)
        return out[0]  # type: ignore[no-any-return]
    out = aten._scaled_dot_product_attention_math(q, k, v, mask, dropout, causal, None, scale=scale)
    return out[0]  # type: ignore[no-any-return]
