"""Operations whose results depend on the data, which a fake tensor doesn't have.

A boolean mask, `nonzero` or NMS keeps the share of elements that the Job says, at worst all; a number read off a tensor
(`.item()`, `if mask.any()`) is 1, true or a half. Each is noted as an assumption of the trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Taken:
    """What is taken for granted about the data.

    Attributes:
        selected: the share of elements that a selection keeps.
        truth: what a boolean read off a tensor is.
    """

    mask_fraction: float = 1.0
    truth: bool = True


Answer = Callable[[Any, tuple[Any, ...], dict[str, Any], Taken], Any]


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


def _scalar(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: Taken) -> Any:
    del func, kwargs
    dtype = args[0].dtype
    if dtype == torch.bool:
        return taken.truth
    # A fraction picks the first of a list when it is made an index, and can be divided by.
    return 0.5 if dtype.is_floating_point else 1


def _nonzero(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: Taken) -> Any:
    del func, kwargs
    x = args[0]
    return torch.empty((_count(x.numel(), taken.mask_fraction), x.dim()), dtype=torch.int64, device=x.device)


def _select(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: Taken) -> Any:
    del func, kwargs
    return args[0].new_empty(_count(args[1].numel(), taken.mask_fraction))


def _unique(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: Taken) -> Any:
    del func, kwargs
    x = args[0]
    indices = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    return x.new_empty(_count(x.numel(), taken.mask_fraction)), indices, torch.empty_like(indices)


def _keep(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: Taken) -> Any:
    del func, kwargs
    return torch.empty(_count(args[0].shape[0], taken.mask_fraction), dtype=torch.int64, device=args[0].device)


def _ctc(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: Taken) -> Any:
    """Every target as long as its row; the forward variables are one number a step and state."""
    del func, kwargs, taken
    probabilities, targets = args[0], args[1]
    steps, count = probabilities.shape[0], probabilities.shape[1]
    longest = targets.shape[1] if targets.dim() > 1 else -(-targets.numel() // count)
    return probabilities.new_empty(count), probabilities.new_empty(count, steps, 2 * longest + 1)


def _ctc_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: Taken) -> Any:
    del func, kwargs, taken
    return torch.empty_like(args[1])


def _masked_index(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], taken: Taken) -> Any:
    """Replace each mask by the index tensors that it stands for."""
    indices: list[Tensor | None] = []
    for index in args[1]:
        if isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8}:
            count = _count(index.numel(), taken.mask_fraction)
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
    "aten::_ctc_loss": _ctc,
    "aten::_ctc_loss.Tensor": _ctc,
    "aten::_ctc_loss_backward": _ctc_backward,
    "aten::_ctc_loss_backward.Tensor": _ctc_backward,
}
_WORDS: dict[Answer, str] = {
    _scalar: "a number read off a tensor is taken as 1, true or a half",
    _nonzero: "nonzero finds the share of elements that the Job's `mask_fraction` says",
    _select: "a boolean mask keeps the share of elements that the Job's `mask_fraction` says",
    _unique: "unique finds the share of elements that the Job's `mask_fraction` says",
    _keep: "NMS keeps the share of boxes that the Job's `mask_fraction` says",
    _ctc: "every target of the CTC loss has its full length",
    _ctc_backward: "every target of the CTC loss has its full length",
    _masked_index: "a boolean mask keeps the share of elements that the Job's `mask_fraction` says",
}
