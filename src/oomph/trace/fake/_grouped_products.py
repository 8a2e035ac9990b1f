"""Grouped matrix products, as mixtures of experts use them.

torch's rule for fake tensors takes bfloat16 only. Other types run group by group into one result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _GroupedProduct(torch.autograd.Function):
    """Allocates the products of rows (tokens, k) with one (k, n) matrix per group, and in backward both gradients."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrices: Tensor) -> Tensor:
        ctx.save_for_backward(rows, matrices)
        return rows.new_empty(rows.shape[0], matrices.shape[-1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, matrices = ctx.saved_tensors
        rows_grad = torch.empty_like(rows) if ctx.needs_input_grad[0] else None
        matrices_grad = torch.empty_like(matrices) if ctx.needs_input_grad[1] else None
        del grad
        return rows_grad, matrices_grad


def grouped_product(function: Callable[..., Tensor], rows: Tensor, matrices: Tensor, **options: Any) -> Tensor:
    """Replace `torch.nn.functional.grouped_mm` where torch has no rule for fake tensors."""
    if rows.dtype == torch.bfloat16 or rows.dim() != 2 or matrices.dim() != 3 or options.get("bias") is not None:  # noqa: PLR2004
        return function(rows, matrices, **options)
    return _GroupedProduct.apply(rows, matrices)  # type: ignore[no-any-return, no-untyped-call]
