"""Selection of the attention kernel, in torch's order of preference."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .._device import CudaDevice


class AttentionBackend(enum.Enum):
    """The kernels that `scaled_dot_product_attention` chooses from."""

    CUDNN = "cudnn"
    FLASH = "flash"
    EFFICIENT = "efficient"
    MATH = "math"


_HALF = {torch.float16, torch.bfloat16}
_CUDNN_PREFERRED_ABOVE = 91500  # newer cuDNN versions come first on Hopper and Blackwell
_CUDNN_WIDE_HEADS_FROM = 90501
_AMPERE, _HOPPER = (8, 0), (9, 0)
_DIMS = 4  # batch, heads, tokens, width
_FLASH_ALIGNMENT = 8  # heads of other widths are padded
_MASK_ALIGNMENT = 8


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of `scaled_dot_product_attention`.

    Attributes:
        grouped: `enable_gqa`, with which several query heads share the keys and values of one head. Without it, such
            tensors are broadcast, which only separate operations can do.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    dropout: float = 0.0
    causal: bool = False
    scale: float | None = None
    grouped: bool = False

    @property
    def dense(self) -> bool:
        """True if the shapes are those that fused kernels accept."""
        q, k, v = self.q, self.k, self.v
        if not q.dim() == k.dim() == v.dim() == _DIMS or 0 in q.shape or 0 in k.shape:
            return False
        return q.shape[0] == k.shape[0] == v.shape[0] and (self.grouped or not self.shared)

    @property
    def shared(self) -> bool:
        """True if there are fewer heads of keys and values than of queries."""
        return self.k.shape[-3] != self.q.shape[-3]

    @property
    def rows_contiguous(self) -> bool:
        """True if the elements of each head, and of each row of the mask, are adjacent in memory."""
        heads = all(x.stride(-1) == 1 or x.shape[-1] == 1 for x in (self.q, self.k, self.v))
        return heads and (self.mask is None or self.mask.stride(-1) == 1)


def choose_backend(call: AttentionCall, device: CudaDevice) -> AttentionBackend:
    """Return the kernel that torch would run on this GPU for these tensors."""
    order = [AttentionBackend.FLASH, AttentionBackend.EFFICIENT]
    if device.capability[0] in {9, 10} and device.cudnn > _CUDNN_PREFERRED_ABOVE:
        order.insert(0, AttentionBackend.CUDNN)
    supports = {
        AttentionBackend.CUDNN: _cudnn_supports,
        AttentionBackend.FLASH: _flash_supports,
        AttentionBackend.EFFICIENT: _efficient_supports,
    }
    if call.dense and call.rows_contiguous:
        for backend in order:
            if supports[backend](call, device):
                return backend
    return AttentionBackend.MATH


def _cudnn_supports(call: AttentionCall, device: CudaDevice) -> bool:
    limit = 256 if device.capability == _HOPPER and device.cudnn >= _CUDNN_WIDE_HEADS_FROM else 128
    widths = {call.q.shape[-1], call.v.shape[-1]}
    fits = all(width % 8 == 0 and width <= limit for width in widths)
    needs_mask_gradient = call.mask is not None and call.mask.requires_grad
    return call.q.dtype in _HALF and fits and not needs_mask_gradient and call.k.shape[-2] > 1


def _flash_supports(call: AttentionCall, device: CudaDevice) -> bool:
    width = call.q.shape[-1]
    same_width = width == call.k.shape[-1] == call.v.shape[-1] and width <= 256  # noqa: PLR2004
    square = call.q.shape[-2] == call.k.shape[-2]
    is_half = call.q.dtype in _HALF and device.capability >= _AMPERE
    return is_half and call.mask is None and same_width and (square or not call.causal)


def _efficient_supports(call: AttentionCall, device: CudaDevice) -> bool:
    align = 4 if call.q.dtype == torch.float32 else 8
    dtypes = {torch.float32, torch.float16} | ({torch.bfloat16} if device.capability >= _AMPERE else set())
    aligned = call.q.shape[-1] % align == 0 and call.v.shape[-1] % align == 0
    return device.capability >= (5, 0) and call.q.dtype in dtypes and aligned and not call.shared


def run_attention(call: AttentionCall, device: CudaDevice) -> Tensor:
    """Call the operations that torch would call on this GPU."""
    backend = choose_backend(call, device)
    q, k, v, dropout, causal, scale = call.q, call.k, call.v, call.dropout, call.causal, call.scale
    mask = _additive_mask(call)
    aten = torch.ops.aten
    needs_grad = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if backend is AttentionBackend.CUDNN:
        out = aten._scaled_dot_product_cudnn_attention(q, k, v, mask, needs_grad, dropout, causal, False, scale=scale)
    elif backend is AttentionBackend.FLASH:
        padding = (0, -q.shape[-1] % _FLASH_ALIGNMENT)
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        q, k, v = (functional.pad(x, padding) if padding[1] else x for x in (q, k, v))
        out = aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, False, scale=scale)
        return out[0][..., : call.q.shape[-1]] if padding[1] else out[0]  # type: ignore[no-any-return]
    elif backend is AttentionBackend.EFFICIENT:
        mask = None if mask is None else _aligned_mask(mask, call)
        out = aten._scaled_dot_product_efficient_attention(q, k, v, mask, needs_grad, dropout, causal, scale=scale)
    else:
        return _math_attention(call, mask)
    return out[0]  # type: ignore[no-any-return]


def _additive_mask(call: AttentionCall) -> Tensor | None:
    """Return the mask as numbers that are added to the products of queries and keys."""
    if call.mask is None or call.mask.dtype != torch.bool:
        return call.mask
    return _from_boolean(call.mask, call.q.dtype)


def _from_boolean(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(mask.logical_not(), float("-inf"), torch.zeros((), dtype=dtype))


def _aligned_mask(mask: Tensor, call: AttentionCall) -> Tensor:
    """Return the mask for every head, in rows that are aligned as the efficient kernel needs them."""
    if any(stride % _MASK_ALIGNMENT for stride in mask.stride()[:-1]):
        width = mask.shape[-1]
        mask = functional.pad(mask, (0, _MASK_ALIGNMENT - width % _MASK_ALIGNMENT))[..., :width]
    return mask.expand(*call.q.shape[:-1], call.k.shape[-2])


def _math_attention(call: AttentionCall, mask: Tensor | None) -> Tensor:
    """Run separate operations in fp32; the sum with the mask is written in place, unlike torch's for fake tensors."""
    q, k, v = (x.float() if x.dtype in _HALF else x for x in (call.q, call.k, call.v))
    scale = math.sqrt(q.shape[-1] ** -0.5 if call.scale is None else abs(call.scale))
    q = q * scale
    if call.causal:
        square = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        mask = _from_boolean(square, q.dtype)
    if call.grouped and call.shared:
        repeats = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(repeats, -3), v.repeat_interleave(repeats, -3)
    scores = torch.matmul(q, k.transpose(-2, -1) * scale)
    if mask is not None:
        scores.add_(mask)
    weights = torch.ops.aten._safe_softmax(scores, -1)
    del scores
    if call.dropout:
        weights = torch.dropout(weights, call.dropout, True)
    return torch.matmul(weights, v).to(call.q.dtype)
