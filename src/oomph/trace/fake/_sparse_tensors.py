"""Sparse gradients, as `nn.Embedding(sparse=True)` has them: what fake tensors get wrong or don't know."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def run_sparse(func: Any, args: tuple[Any, ...]) -> Any:
    """Run an operation on a sparse tensor; return NotImplemented for those that fake tensors support.

    Coalescing keeps all rows, as if no index occurred twice.
    """
    name = func._schema.name
    if name in {"aten::clone", "aten::_coalesce"}:
        source = args[0]
        copied = _sparse(source, source._indices().clone(), source._values().clone())
        return copied._coalesced_(True) if name == "aten::_coalesce" or source.is_coalesced() else copied
    if name == "aten::sparse_mask":
        dense, mask = args
        return _sparse(mask, mask._indices(), dense.new_empty(mask._values().shape))._coalesced_(True)
    if name in {"aten::add_", "aten::sub_"} and args[0].layout is torch.strided:
        return args[0]  # the rows are added in place
    return NotImplemented


def is_sparse_call(args: tuple[Any, ...]) -> bool:
    """Return True if one of the first two arguments is sparse."""
    return any(isinstance(arg, Tensor) and arg.layout is torch.sparse_coo for arg in args[:2])


def _sparse(like: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(indices, values, like.shape, check_invariants=False)
