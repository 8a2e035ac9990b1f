"""Operations whose results depend on the data, which a fake tensor doesn't have.

A boolean mask, `nonzero` or NMS keeps the share of elements that the Job says, at worst all; a number read off a tensor
(`.item()`, `if mask.any()`) is 1. Each is noted as an assumption of the trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Answer = Callable[[Any, tuple[Any, ...], dict[str, Any], float], Any]


def answer_for(func: Any, args: tuple[Any, ...]) -> tuple[Answer, str] | None:
    """How to answer an operation that depends on data, and the assumption in words; None for all others."""
    name = func.name() if hasattr(func, "name") else str(func)
    if name in _ANSWERS:
        return _ANSWERS[name], _WORDS[_ANSWERS[name]]
    if name in {"aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}:
        indices = args[1]
        if any(isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8} for index in indices):
            return _masked_index, _WORDS[_masked_index]
    return None


def _count(size: int, share: float) -> int:
    return max(math.ceil(size * share), 1) if size else 0


def _scalar(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], share: float) -> Any:
    del func, kwargs, share
    dtype = args[0].dtype
    if dtype == torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1


def _nonzero(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], share: float) -> Any:
    del func, kwargs
    x = args[0]
    return torch.empty((_count(x.numel(), share), x.dim()), dtype=torch.int64, device=x.device)


def _select(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], share: float) -> Any:
    del func, kwargs
    return args[0].new_empty(_count(args[1].numel(), share))


def _unique(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], share: float) -> Any:
    del func, kwargs
    x = args[0]
    indices = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    return x.new_empty(_count(x.numel(), share)), indices, torch.empty_like(indices)


def _keep(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], share: float) -> Any:
    del func, kwargs
    return torch.empty(_count(args[0].shape[0], share), dtype=torch.int64, device=args[0].device)


def _masked_index(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], share: float) -> Any:
    """Replace each mask by the index tensors that it stands for."""
    indices: list[Tensor | None] = []
    for index in args[1]:
        if isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8}:
            count = _count(index.numel(), share)
            indices += [torch.empty(count, dtype=torch.int64, device=index.device) for _ in range(index.dim())]
        else:
            indices.append(index)
    return func(args[0], indices, *args[2:], **kwargs)


_ANSWERS: dict[str, Answer] = {
    "aten::_local_scalar_dense": _scalar,
    "aten::nonzero": _nonzero,
    "aten::masked_select": _select,
    "aten::_unique2": _unique,
    "torchvision::nms": _keep,
}
_WORDS: dict[Answer, str] = {
    _scalar: "a number read off a tensor is taken as 1 (true)",
    _nonzero: "nonzero finds the share of elements that the Job's `selected` says",
    _select: "a boolean mask keeps the share of elements that the Job's `selected` says",
    _unique: "unique finds the share of elements that the Job's `selected` says",
    _keep: "NMS keeps the share of boxes that the Job's `selected` says",
    _masked_index: "a boolean mask keeps the share of elements that the Job's `selected` says",
}
